"""Budgets below which nothing fits, proved without a solver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from checkmate.errors import InfeasibleError
from checkmate.graph import Graph, OpId, TensorId, find_readers
from checkmate.problem import Problem
from checkmate.units import format_nbytes_exactly


def smallest_conceivable_nbytes(problem: Problem) -> tuple[int, OpId | None]:
    """Return a budget below which no schedule fits, and the op that binds.

    It holds for every schedule of the op order: no op runs ahead of one that runs once and comes
    before it in the graph, but an op may first run later than its turn. When an op first runs, its
    inputs, its outputs and its workspace are in memory, and so is every tensor of an earlier op
    that runs once, when it is a graph output or a reader of it cannot have run. At the end all
    graph outputs are in memory: that counts for the last op. None: the resident tensors bind.
    """
    graph, workspaces = problem.graph, problem.costs.workspace_nbytes
    held_nbytes = _count_held(graph)
    best_nbytes: int = 0
    binding: OpId | None = None
    for k, op in enumerate(graph.ops):
        needed_nbytes = held_nbytes[k] + _sum_made(graph, op.outputs) + workspaces[k]
        if k == len(graph.ops) - 1:
            needed_nbytes = max(needed_nbytes, _sum_made(graph, graph.outputs))
        if needed_nbytes > best_nbytes:
            best_nbytes, binding = needed_nbytes, OpId(k)
    return graph.resident_nbytes + best_nbytes, binding


def check_conceivable(problem: Problem, budget_nbytes: int) -> None:
    """Raise `InfeasibleError`, naming the op, when nothing can fit in ``budget_nbytes``."""
    needed_nbytes, op = smallest_conceivable_nbytes(problem)
    if budget_nbytes < needed_nbytes:
        name = None if op is None else problem.graph.ops[op].name
        what = "its inputs and parameters alone need" if op is None else f"op {name!r} alone needs"
        raise InfeasibleError(
            f"no schedule of {problem.graph.name!r} fits in {format_nbytes_exactly(budget_nbytes)}:"
            f" {what} {format_nbytes_exactly(needed_nbytes)}"
        )


def _count_held(graph: Graph) -> list[int]:
    """Return, per op, the bytes of what it reads and of what earlier ops made that run once."""
    pinned = [e for op in graph.ops if not op.recomputable for e in op.outputs]
    bits = {e: 1 << position for position, e in enumerate(pinned)}
    kept, needs = frozenset(graph.outputs), _find_needs(graph, bits)
    held_nbytes: list[int] = []
    made = kept_nbytes = 0
    for op, needed in zip(graph.ops, needs, strict=True):
        others = (tensor for tensor in op.inputs if tensor not in bits)
        nbytes = kept_nbytes + _sum_made(graph, others)
        held_nbytes.append(nbytes + _sum_made(graph, _list_bits(pinned, needed & made)))
        for output in op.outputs if not op.recomputable else ():
            if output in kept:
                kept_nbytes += graph.tensors[output].nbytes
            else:
                made |= bits[output]
    return held_nbytes


def _find_needs(graph: Graph, bits: Mapping[TensorId, int]) -> list[int]:
    """Return, per op, of which of the tensors in ``bits`` a reader cannot have run before it.

    Such a reader is the op itself, or descends from it; or it comes, in the graph, after one of
    these that runs once.
    """
    readers = find_readers(graph)
    needs = [0] * len(graph.ops)
    read_later = 0
    for k in reversed(range(len(graph.ops))):
        op = graph.ops[k]
        for tensor in op.inputs:
            needs[k] |= bits.get(tensor, 0)
        read_later |= needs[k]
        for reader in (reader for output in op.outputs for reader in readers[output]):
            needs[k] |= needs[reader]
        if not op.recomputable:
            needs[k] |= read_later
    return needs


def _list_bits(tensors: Sequence[TensorId], bits: int) -> Iterator[TensorId]:
    while bits:
        lowest = bits & -bits
        yield tensors[lowest.bit_length() - 1]
        bits ^= lowest


def _sum_made(graph: Graph, tensors: Iterable[TensorId]) -> int:
    """Return the bytes of those of ``tensors``, each listed once, that are not resident."""
    made = (graph.tensors[e] for e in tensors if graph.tensors[e].producer is not None)
    return sum(tensor.nbytes for tensor in made)
