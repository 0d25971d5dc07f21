"""How late a recompute, or a tensor, can still matter."""

from __future__ import annotations

from dataclasses import dataclass

from checkmate.graph import Graph, OpId, TensorId, find_readers


@dataclass(frozen=True, slots=True)
class Reach:
    """The last stage in which each op or tensor can serve a first run or the graph's outputs."""

    of_op: tuple[int, ...]
    """Per op: recomputing it in a later stage serves nothing; -1 when nothing reads it."""
    of_tensor: tuple[int, ...]
    """Per tensor: reading it in a later stage serves nothing; ``n`` for graph outputs."""
    forced: tuple[int, ...]
    """Per tensor: the last stage into which every schedule retains it; -1 when there is none."""


def find_reach(graph: Graph) -> Reach:
    """Return the reach of every op and tensor.

    A reader serves something in its own first run and, when it is recomputable, as long as its
    own outputs do. A tensor whose producer runs once is there until its last first reader.
    """
    readers, kept = find_readers(graph), frozenset(graph.outputs)
    of_op = [-1] * len(graph.ops)
    of_tensor = [-1] * len(graph.tensors)

    def serve(tensor: TensorId) -> int:
        if tensor in kept:
            return len(graph.ops)
        again = (of_op[j] for j in readers[tensor] if graph.ops[j].recomputable)
        return max((*readers[tensor], *again), default=-1)

    for i in reversed(range(len(graph.ops))):
        for output in graph.ops[i].outputs:
            of_tensor[output] = serve(output)
        of_op[i] = max((of_tensor[output] for output in graph.ops[i].outputs), default=-1)
    forced = tuple(_find_forced(graph, TensorId(e), readers[e]) for e in range(len(graph.tensors)))
    return Reach(tuple(of_op), tuple(of_tensor), forced)


def count_coefficients(graph: Graph) -> int:
    """Return about how many coefficients the memory rows have, without making them.

    One for each op that may run in a stage and each tensor that may be retained into it.
    """
    reach, n = find_reach(graph), len(graph.ops)
    runs, retains = [1] * (n + 1), [0] * (n + 1)
    for i, op in enumerate(graph.ops):
        if op.recomputable:
            _count_range(runs, i + 1, reach.of_op[i])
        for e in op.outputs:
            _count_range(retains, i + 1, reach.of_tensor[e])
    return sum(run * retain for run, retain in zip(runs, retains, strict=True))


def _count_range(counts: list[int], first: int, last: int) -> None:
    for t in range(first, min(last, len(counts) - 1) + 1):
        counts[t] += 1


def _find_forced(graph: Graph, tensor: TensorId, readers: tuple[OpId, ...]) -> int:
    producer = graph.tensors[tensor].producer
    if tensor in graph.outputs and producer is not None and not graph.ops[producer].recomputable:
        return len(graph.ops)
    if producer is not None and not graph.ops[producer].recomputable:
        return max(readers, default=-1)
    return -1
