"""Whether any schedule fits at all, by going through what memory can hold.

A state is the frontier (how far in the graph the run is), the ops before it that have yet to run,
and the set of tensors in memory. From a state any op up to the frontier may run, and any tensor may
be freed. Where an op that runs once comes before it, the op at the frontier may be passed over if
it cannot run now: else it could as well run and its outputs be freed. When the states that can be
reached end without an end, no schedule fits in which no op runs ahead of one that runs once and
comes before it: the proof for the widest space, for graphs small enough to be exhausted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from checkmate.errors import NotFoundError
from checkmate.graph import OpId, TensorId
from checkmate.problem import Problem

MAX_STATES = 100_000

_State = tuple[int, int, int]
"""The frontier, the ops passed over and the tensors in memory, both as bits."""


@dataclass(frozen=True, slots=True)
class _Step:
    """How a state was reached: from which, by which op; None: by a free, or passing one over."""

    before: _State
    op: OpId | None


def find_any_order(problem: Problem, budget_nbytes: int) -> tuple[OpId, ...] | None:
    """Return an order of the folded ``problem`` that fits; None: it is proved that none does.

    The order is not made to be fast. Raises `NotFoundError` when there are too many states.
    """
    machine = _Machine(problem, budget_nbytes)
    start: _State = (0, 0, 0)
    reached: dict[_State, _Step | None] = {start: None}
    pending = [start]
    while pending:
        state = pending.pop()
        if machine.is_end(state):
            return _trace(reached, state)
        for step, after in machine.find_moves(state):
            if after not in reached:
                reached[after] = step
                pending.append(after)
        if len(reached) > MAX_STATES:
            raise NotFoundError(f"more than {MAX_STATES} states of memory: not exhausted")
    return None


class _Machine:
    """A problem within a budget, as moves between states."""

    def __init__(self, problem: Problem, budget_nbytes: int) -> None:
        graph = problem.graph
        self._ops = graph.ops
        self._room = budget_nbytes - graph.resident_nbytes
        self._workspace = problem.costs.workspace_nbytes
        self._nbytes = [tensor.nbytes for tensor in graph.tensors]
        self._made = [tensor.producer is not None for tensor in graph.tensors]
        self._reads = [self._as_bits(op.inputs) for op in graph.ops]
        self._makes = [self._as_bits(op.outputs) for op in graph.ops]
        self._kept = self._as_bits(graph.outputs)
        self._pinned = [k for k, op in enumerate(graph.ops) if not op.recomputable]

    def is_end(self, state: _State) -> bool:
        frontier, passed, live = state
        return frontier == len(self._ops) and not passed and not self._kept & ~live

    def find_moves(self, state: _State) -> Iterator[tuple[_Step, _State]]:
        """Yield frees, then recomputes, then the frontier op: the last is tried first."""
        frontier, passed, live = state
        used = sum(self._nbytes[tensor] for tensor in self._list_bits(live))
        for tensor in self._list_bits(live):
            yield _Step(state, None), (frontier, passed, live & ~(1 << tensor))
        if self._may_pass(frontier) and not self._can_run(frontier, frontier, live, used):
            yield _Step(state, None), (frontier + 1, passed | 1 << frontier, live)
        for op in range(min(frontier + 1, len(self._ops))):
            if self._can_run(op, frontier, live, used):
                after = (frontier + (op == frontier), passed & ~(1 << op), live | self._makes[op])
                yield _Step(state, OpId(op)), after

    def _may_pass(self, op: int) -> bool:
        """Return whether ``op`` may run later than its turn, where that may be of use."""
        if op == len(self._ops) or not self._ops[op].recomputable:
            return False
        return bool(self._pinned) and self._pinned[0] < op

    def _can_run(self, op: int, frontier: int, live: int, used: int) -> bool:
        is_again = op < frontier
        if (is_again and not self._ops[op].recomputable) or self._reads[op] & ~live:
            return False
        if self._makes[op] & live:
            return False
        made = sum(self._nbytes[tensor] for tensor in self._ops[op].outputs)
        return used + made + self._workspace[op] <= self._room

    def _as_bits(self, tensors: tuple[TensorId, ...]) -> int:
        return sum(1 << tensor for tensor in tensors if self._made[tensor])

    def _list_bits(self, live: int) -> Iterator[int]:
        while live:
            lowest = live & -live
            yield lowest.bit_length() - 1
            live ^= lowest


def _trace(reached: dict[_State, _Step | None], state: _State) -> tuple[OpId, ...]:
    order: list[OpId] = []
    step = reached[state]
    while step is not None:
        if step.op is not None:
            order.append(step.op)
        step = reached[step.before]
    return tuple(reversed(order))
