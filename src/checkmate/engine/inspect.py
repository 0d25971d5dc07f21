"""What a schedule keeps and what it computes again."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from checkmate.graph import Graph, OpId, TensorId
from checkmate.schedule import Compute, Schedule


@dataclass(frozen=True, slots=True)
class Retention:
    """What a schedule does with the results of the forward pass."""

    kept: tuple[TensorId, ...]
    """Forward tensors in memory when the backward pass begins, largest first."""
    dropped: tuple[TensorId, ...]
    """Forward tensors that were freed before it and are made again later, largest first."""
    recomputes: tuple[tuple[OpId, int], ...]
    """Ops that are computed more than once, and how often beyond the first, in graph order."""


def find_retention(graph: Graph, schedule: Schedule) -> Retention:
    """Return what ``schedule`` keeps for the backward pass and what it computes again.

    Without a backward pass, nothing counts as kept or dropped.
    """
    live: set[TensorId] = set()
    for step in schedule.instructions:
        if isinstance(step, Compute):
            if graph.ops[step.op].backward:
                break
            live.update(graph.ops[step.op].outputs)
        else:
            live.discard(step.tensor)
    else:
        live.clear()
    counts = Counter(schedule.order)
    recomputes = tuple((op, counts[op] - 1) for op in sorted(counts) if counts[op] > 1)
    made_again = {tensor for op, _ in recomputes for tensor in graph.ops[op].outputs}
    return Retention(
        _sort_by_size(graph, live),
        _sort_by_size(graph, made_again - live if live else set()),
        recomputes,
    )


def _sort_by_size(graph: Graph, tensors: set[TensorId]) -> tuple[TensorId, ...]:
    return tuple(sorted(tensors, key=lambda tensor: (-graph.tensors[tensor].nbytes, tensor)))
