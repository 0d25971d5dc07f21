"""Budgets below which nothing fits, proved without a solver."""

from __future__ import annotations

from collections.abc import Iterable

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
    pins = _Pins(graph)
    best_nbytes: int = 0
    binding: OpId | None = None
    for k, op in enumerate(graph.ops):
        needed_nbytes = pins.count_at(k) + workspaces[k]
        if k == len(graph.ops) - 1:
            needed_nbytes = max(needed_nbytes, _sum_made(graph, graph.outputs))
        if needed_nbytes > best_nbytes:
            best_nbytes, binding = needed_nbytes, OpId(k)
        if not op.recomputable:
            pins.add(k)
    return graph.resident_nbytes + best_nbytes, binding


class _Pins:
    """The tensors of ops that run once, while a later op has yet to read them."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._last_use = _find_last_uses(graph)
        self._pinned: set[TensorId] = set()
        self._nbytes = 0
        self._ending: dict[int, list[TensorId]] = {}

    def count_at(self, k: int) -> int:
        """Return the bytes of what is pinned and of what op ``k`` reads and makes.

        To be called for one op after the other: what op ``k`` is the last to read is let go.
        """
        for tensor in self._ending.pop(k, ()):
            self._pinned.remove(tensor)
            self._nbytes -= self._graph.tensors[tensor].nbytes
        op = self._graph.ops[k]
        others = (tensor for tensor in (*op.inputs, *op.outputs) if tensor not in self._pinned)
        return self._nbytes + _sum_made(self._graph, others)

    def add(self, k: int) -> None:
        """Pin what op ``k``, which runs once, has made for later ops."""
        for tensor in self._graph.ops[k].outputs:
            if self._last_use[tensor] > k:
                self._pinned.add(tensor)
                self._nbytes += self._graph.tensors[tensor].nbytes
                self._ending.setdefault(self._last_use[tensor], []).append(tensor)


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


def _sum_made(graph: Graph, tensors: Iterable[TensorId]) -> int:
    """Return the bytes of those of ``tensors``, each listed once, that are not resident."""
    made = (graph.tensors[e] for e in tensors if graph.tensors[e].producer is not None)
    return sum(tensor.nbytes for tensor in made)
