"""A problem with its ops in another order, and the way back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from checkmate.costs import Costs
from checkmate.graph import Graph, OpId, Tensor
from checkmate.placement import ArenaRules
from checkmate.problem import Problem
from checkmate.schedule import Compute, Instruction, Schedule


@dataclass(frozen=True, slots=True)
class Reordering:
    """A problem, the same in another op order, and which op is which. Tensors keep their ids."""

    original: Problem
    reordered: Problem
    order: tuple[OpId, ...]
    """Per reordered op: the original op."""

    @property
    def is_identity(self) -> bool:
        """Every op is where it was."""
        return all(place == op for place, op in enumerate(self.order))

    def restore(self, schedule: Schedule) -> Schedule:
        """Return what ``schedule``, of the reordered problem, is for the original."""
        return Schedule(tuple(map(self._restore_step, schedule.instructions)))

    def _restore_step(self, step: Instruction) -> Instruction:
        return Compute(self.order[step.op]) if isinstance(step, Compute) else step


def reorder(problem: Problem, order: Sequence[OpId]) -> Reordering:
    """Return ``problem`` with its ops in ``order``, which has each op once.

    Raises `GraphError` when an op would come before what makes its input.
    """
    graph, costs = problem.graph, problem.costs
    places = {op: OpId(place) for place, op in enumerate(order)}

    def move(tensor: Tensor) -> Tensor:
        if tensor.producer is None:
            return tensor
        return replace(tensor, producer=places[tensor.producer])

    moved = Graph(
        graph.name,
        tuple(graph.ops[op] for op in order),
        tuple(map(move, graph.tensors)),
        graph.outputs,
    )
    moved_costs = Costs(
        tuple(costs.time_ns[op] for op in order),
        tuple(costs.workspace_nbytes[op] for op in order),
        costs.origin,
    )
    arena: ArenaRules | None = problem.arena
    if arena is not None:
        arena = replace(
            arena,
            partial=frozenset(places[op] for op in arena.partial),
            n_later={places[op]: count for op, count in arena.n_later.items()},
        )
    return Reordering(problem, Problem(moved, moved_costs, arena), tuple(order))
