"""An order of computes as values of the columns, and which orders have them."""

from __future__ import annotations

from collections.abc import Sequence

from checkmate.graph import Graph, OpId
from checkmate.milp.columns import Columns
from checkmate.milp.model import FloatArray


def is_frontier_advancing(graph: Graph, order: Sequence[OpId]) -> bool:
    """Return whether ``order`` is a sequence of stages.

    Stage ``t`` ends with the first run of op ``t``; within it ops run in graph order, each at
    most once.
    """
    frontier, last = 0, -1
    for op in order:
        if op > frontier or op <= last:
            return False
        last = op
        if op == frontier:
            frontier, last = frontier + 1, -1
    return frontier == len(graph.ops) and last == -1


def split_stages(order: Sequence[OpId]) -> list[list[OpId]]:
    """Return the ops of each stage of a frontier-advancing ``order``."""
    stages: list[list[OpId]] = [[]]
    for op in order:
        stages[-1].append(op)
        if op == len(stages) - 1:
            stages.append([])
    return stages[:-1]


def encode(graph: Graph, columns: Columns, order: Sequence[OpId]) -> FloatArray:
    """Return the columns' values for a frontier-advancing ``order`` that can run.

    Retention and need are as small as they can be. A recompute that serves nothing has no column
    and is left out.
    """
    values = columns.lower.copy()
    live = set(graph.outputs)
    live_at = {len(graph.ops): frozenset(live)}
    for t, stage in reversed(tuple(enumerate(split_stages(order)))):
        for i in reversed([i for i in stage if (t, i) in columns.run]):
            values[columns.run[t, i]] = 1.0
            live.difference_update(graph.ops[i].outputs)
            live.update(graph.ops[i].inputs)
        live_at[t] = frozenset(live)
    for (t, e), column in columns.retain.items():
        values[column] = e in live_at[t]
    _encode_needs(columns, values)
    return values


def decode(columns: Columns, values: FloatArray) -> tuple[OpId, ...]:
    """Return the order of computes that the columns' values stand for."""
    return tuple(OpId(i) for (_, i), column in columns.run.items() if values[column] > 0.5)


def _encode_needs(columns: Columns, values: FloatArray) -> None:
    """Set what is needed, given the values of what runs and what is retained."""
    for (t, _), need in columns.need.items():
        level = 0.0
        for k, column in reversed(need):
            level = max(level, values[columns.run.get((t, k), column)])
            values[column] = level
