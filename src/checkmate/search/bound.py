"""Budgets below which nothing fits, proved without a solver."""

from __future__ import annotations

from checkmate.errors import InfeasibleError
from checkmate.graph import Graph, OpId, TensorId, find_readers
from checkmate.problem import Problem
from checkmate.units import format_nbytes_exactly


def smallest_conceivable_nbytes(problem: Problem) -> tuple[int, OpId | None]:
    """Return a budget below which no schedule fits, and the op that binds.

    It holds for every schedule whose first runs are in graph order. When an op first runs, its
    inputs, its outputs and its workspace are in memory, and so is every tensor that an earlier op
    made that runs once, when a later op has yet to read it or it is a graph output. At the end all
    graph outputs are in memory: that counts for the last op. None: the resident tensors bind.
    """
    graph, workspaces = problem.graph, problem.costs.workspace_nbytes
    last_use = _find_last_uses(graph)
    best: tuple[int, OpId | None] = (graph.resident_nbytes, None)
    pinned: set[TensorId] = set()
    for k, op in enumerate(graph.ops):
        pinned = {e for e in pinned if last_use[e] > k}
        at_run = _sum_nbytes(graph, pinned.union(op.inputs, op.outputs)) + workspaces[k]
        at_end = _sum_nbytes(graph, set(graph.outputs)) if k == len(graph.ops) - 1 else 0
        best = max(best, (graph.resident_nbytes + max(at_run, at_end), OpId(k)), key=lambda b: b[0])
        if not op.recomputable:
            pinned.update(op.outputs)
    return best


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


def _find_last_uses(graph: Graph) -> list[int]:
    """Return, per tensor, its last reader in graph order; the number of ops for graph outputs."""
    last = [max(readers, default=-1) for readers in find_readers(graph)]
    for output in graph.outputs:
        last[output] = len(graph.ops)
    return last


def _sum_nbytes(graph: Graph, tensors: set[TensorId]) -> int:
    """Return the bytes of those of ``tensors`` that are not resident."""
    made = (graph.tensors[e] for e in tensors if graph.tensors[e].producer is not None)
    return sum(tensor.nbytes for tensor in made)
