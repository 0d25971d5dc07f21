"""The best chain-of-stages schedule by trying them all; shares no code with any search.

The class, once more and in other words: first runs are in file order. After the first backward op,
an op is *fixed* when it is a backward op, may run only once, makes a graph output, makes nothing
that is read, or reads what a fixed op makes. Fixed ops run once. Other ops that may run again do so
only after the first backward op's predecessors have all run, just before the first run of an op
that descends from them through ops that are not fixed and may run again (the last op of the file
reads all graph outputs, so to speak); in one such place ops run in file order.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from checkmate.graph import Op, OpId
from checkmate.problem import Problem

State = tuple[int, int, int]
"""The next first run, the last op that ran again before it (-1: none), live tensors."""


@dataclass(frozen=True)
class ChainMachine:
    problem: Problem
    room_nbytes: int

    @cached_property
    def n_forward(self) -> int:
        return [op.backward for op in self.problem.graph.ops].index(True)

    @cached_property
    def fixed(self) -> list[int]:
        graph, found = self.problem.graph, list[int]()
        for k in range(self.n_forward, len(graph.ops)):
            op, makers = graph.ops[k], self.makers_of(k)
            unread = not any(set(op.outputs) & set(other.inputs) for other in graph.ops)
            kept = bool(set(op.outputs) & set(graph.outputs))
            if op.backward or not op.recomputable or unread or kept or makers & set(found):
                found.append(k)
        return found

    def makers_of(self, k: int) -> set[int]:
        inputs = self.op(k).inputs + (self.problem.graph.outputs if k == self.n_ops - 1 else ())
        makers = (self.problem.graph.tensors[e].producer for e in inputs)
        return {maker for maker in makers if maker is not None}

    def op(self, k: int) -> Op:
        return self.problem.graph.ops[k]

    @cached_property
    def windows(self) -> list[list[int]]:
        """Per op: what may run again before its first run, in file order."""
        windows: list[list[int]] = [[] for _ in range(self.n_forward)]
        for k in range(self.n_forward, self.n_ops):
            found: set[int] = set()
            pending = [k]
            while pending:
                for maker in self.makers_of(pending.pop()) - found - set(self.fixed):
                    if self.op(maker).recomputable:
                        found.add(maker)
                        pending.append(maker)
            windows.append(sorted(found))
        return windows

    @property
    def n_ops(self) -> int:
        return len(self.problem.graph.ops)

    def find_moves(self, state: State) -> Iterator[tuple[int, int | None, State]]:
        at, last, live = state
        for e in range(live.bit_length()):
            if live >> e & 1:
                yield 0, None, (at, last, live & ~(1 << e))
        for k in self.windows[at] if at < self.n_ops else ():
            if k > last and self.can_run(k, live):
                yield self.problem.costs.time_ns[k], k, (at, k, live | self.outputs[k])
        if at < self.n_ops and self.can_run(at, live):
            yield self.problem.costs.time_ns[at], at, (at + 1, -1, live | self.outputs[at])

    def can_run(self, k: int, live: int) -> bool:
        if self.inputs[k] & ~live or self.outputs[k] & live:
            return False
        return self.nbytes_of(live | self.outputs[k]) <= self.room_nbytes - self.workspace[k]

    def is_end(self, state: State) -> bool:
        return state[0] == self.n_ops and not self.kept & ~state[2]

    @cached_property
    def workspace(self) -> tuple[int, ...]:
        return self.problem.costs.workspace_nbytes

    @cached_property
    def inputs(self) -> list[int]:
        return [self.bits(op.inputs) for op in self.problem.graph.ops]

    @cached_property
    def outputs(self) -> list[int]:
        return [self.bits(op.outputs) for op in self.problem.graph.ops]

    @cached_property
    def kept(self) -> int:
        return self.bits(self.problem.graph.outputs)

    def bits(self, tensors: tuple[int, ...]) -> int:
        made = (e for e in tensors if self.problem.graph.tensors[e].producer is not None)
        return sum(1 << e for e in made)

    @cached_property
    def sizes(self) -> dict[int, int]:
        """By live tensors, as far as they came up."""
        return {0: 0}

    def nbytes_of(self, bits: int) -> int:
        if bits not in self.sizes:
            first = bits & -bits
            nbytes = self.problem.graph.tensors[first.bit_length() - 1].nbytes
            self.sizes[bits] = nbytes + self.nbytes_of(bits ^ first)
        return self.sizes[bits]


def find_best_chain(problem: Problem, budget_nbytes: int) -> tuple[int, tuple[OpId, ...]] | None:
    """Return the least time of a chain of stages that fits, and its order; None: none fits."""
    machine = ChainMachine(problem, budget_nbytes - problem.graph.resident_nbytes)
    reached: dict[State, tuple[State, int | None]] = {}
    queue: list[tuple[int, State, State, int | None]] = [(0, (0, -1, 0), (0, -1, 0), None)]
    while queue:
        time_ns, state, before, ran = heapq.heappop(queue)
        if state in reached:
            continue
        reached[state] = before, ran
        if machine.is_end(state):
            return time_ns, _trace(reached, state)
        for cost_ns, k, after in machine.find_moves(state):
            if after not in reached:
                heapq.heappush(queue, (time_ns + cost_ns, after, state, -1 if k is None else k))
    return None


def _trace(reached: dict[State, tuple[State, int | None]], state: State) -> tuple[OpId, ...]:
    order: list[OpId] = []
    while state != (0, -1, 0):
        state, ran = reached[state]
        if ran is not None and ran >= 0:
            order.append(OpId(ran))
    return tuple(reversed(order))
