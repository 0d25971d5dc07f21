"""The best frontier-advancing schedule by trying them all; shares no code with any search."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from checkmate.problem import Problem

State = tuple[int, int, int]
"""The stage, the last op that ran in it (-1: none), and the live tensors as bits."""


@dataclass(frozen=True)
class Machine:
    """A problem in a budget, as moves between states."""

    problem: Problem
    room_nbytes: int

    def find_moves(self, state: State) -> Iterator[tuple[int, State]]:
        """Yield the cost and the state of each instruction that may come next."""
        stage, last, live = state
        for e in range(live.bit_length()):
            if live >> e & 1:
                yield 0, (stage, last, live & ~(1 << e))
        for k in range(last + 1, stage + 1):
            if self.can_run(k, stage, live):
                after = live | self.bits_of(self.problem.graph.ops[k].outputs)
                stage_after = (stage + 1, -1) if k == stage else (stage, k)
                yield self.problem.costs.time_ns[k], (*stage_after, after)

    def can_run(self, k: int, stage: int, live: int) -> bool:
        op = self.problem.graph.ops[k]
        inputs, outputs = self.bits_of(op.inputs), self.bits_of(op.outputs)
        if (k < stage and not op.recomputable) or inputs & ~live or outputs & live:
            return False
        used = self.nbytes_of(live | outputs) + self.problem.costs.workspace_nbytes[k]
        return used <= self.room_nbytes

    def bits_of(self, tensors: tuple[int, ...]) -> int:
        made = (e for e in tensors if self.problem.graph.tensors[e].producer is not None)
        return sum(1 << e for e in made)

    def nbytes_of(self, bits: int) -> int:
        tensors = self.problem.graph.tensors
        return sum(tensors[e].nbytes for e in range(bits.bit_length()) if bits >> e & 1)


def find_best_time(problem: Problem, budget_nbytes: int) -> int | None:
    """Return the least time of a frontier-advancing schedule that fits; None: none fits."""
    machine = Machine(problem, budget_nbytes - problem.graph.resident_nbytes)
    end, kept = len(problem.graph.ops), machine.bits_of(problem.graph.outputs)
    queue: list[tuple[int, State]] = [(0, (0, -1, 0))]
    done: set[State] = set()
    while queue:
        time_ns, state = heapq.heappop(queue)
        if state in done:
            continue
        done.add(state)
        if state[0] == end:
            if not kept & ~state[2]:
                return time_ns
            continue
        for cost_ns, after in machine.find_moves(state):
            if after not in done:
                heapq.heappush(queue, (time_ns + cost_ns, after))
    return None
