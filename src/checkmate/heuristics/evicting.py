"""One run of the graph under a budget that evicts tensors when memory is short.

The ops run in graph order. Before an op runs, whatever it reads and is not in memory is made
again in one ascending sweep over its missing ancestors. When an instruction would not fit,
tensors that the stage does not read are evicted, the lowest score first. Tensors stay in memory
after their use for as long as there is room, so neighbours that need the same chain share one
sweep; where the room ends is found by the frees that the order implies, not here.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable

from checkmate.graph import OpId, TensorId
from checkmate.heuristics.memory import NEVER, Memory
from checkmate.heuristics.scoring import LOST, Policy, Scorer
from checkmate.heuristics.tables import Tables, find_uses

_MOST_RUNS = 5
"""A run gives up when it takes this many times the time of running each op once."""

_MOST_NOTED = 64
"""Ops that read a tensor, the latest of them, whose outputs are scored again when it is back."""


def run_evicting(
    tables: Tables, policy: Policy, budget_nbytes: int, useless_nbytes: int
) -> tuple[OpId, ...]:
    """Return an order that stays within ``budget_nbytes`` wherever the policy finds a way to.

    Where it finds none, the instruction runs all the same: the caller measures the peak. A run
    that uses ``useless_nbytes``, or recomputes beyond all measure, evicts nothing any more.
    """
    run = _Run(tables, policy, budget_nbytes, useless_nbytes)
    order: list[OpId] = []
    for stage in range(tables.n_ops):
        order += run.run_stage(OpId(stage))
    return tuple(order)


class _Run:
    """Memory during the run, and what the current stage still has to read."""

    def __init__(
        self, tables: Tables, policy: Policy, budget_nbytes: int, useless_nbytes: int
    ) -> None:
        self._tables = tables
        self._budget_nbytes = budget_nbytes
        self._useless_nbytes = useless_nbytes
        self._left_ns = _MOST_RUNS * sum(tables.time_ns)
        self._memory = Memory(tables)
        self._queue = _Queue(self._memory, Scorer(self._memory, policy))
        self._sweep: list[OpId] = []
        self._in_sweep: set[OpId] = set()

    def run_stage(self, stage: OpId) -> list[OpId]:
        """Run what ``stage`` is missing and its own op; return them in the order they ran."""
        self._in_sweep.clear()
        ran: list[OpId] = []
        self._plan((*self._memory.find_missing(find_uses(self._tables, stage)), stage))
        while self._sweep:
            op = heapq.heappop(self._sweep)
            self._make_room(op)
            self._compute(op)
            ran.append(op)
        self._memory.end_stage()
        self._queue.release(find_uses(self._tables, stage))
        return ran

    def _plan(self, ops: Iterable[OpId]) -> None:
        """Add ``ops`` to the sweep and hold what they read."""
        for op in ops:
            if op not in self._in_sweep:
                self._in_sweep.add(op)
                heapq.heappush(self._sweep, op)
                self._queue.hold(self._find_reads(op))

    def _find_reads(self, op: OpId) -> tuple[TensorId, ...]:
        is_frontier = op == self._memory.stage
        return find_uses(self._tables, op) if is_frontier else self._tables.reads[op]

    def _compute(self, op: OpId) -> None:
        tables, memory = self._tables, self._memory
        for tensor in tables.makes[op]:
            memory.add(tensor)
            self._queue.note(tensor)
        if memory.used_nbytes + tables.workspace_nbytes[op] >= self._useless_nbytes:
            self._left_ns = -1
        if op < memory.stage:
            self._left_ns -= tables.time_ns[op]
            self._queue.release(tables.reads[op])

    def _make_room(self, op: OpId) -> None:
        """Evict until ``op`` fits, or nothing more can be evicted."""
        tables, memory, makes = self._tables, self._memory, self._tables.makes[op]
        made_nbytes = sum(tables.nbytes[t] for t in makes if not memory.live[t])
        room_nbytes = self._budget_nbytes - made_nbytes - tables.workspace_nbytes[op]
        if memory.used_nbytes <= room_nbytes or self._left_ns < 0:
            return
        self._queue.hold(makes)
        victims: list[TensorId] = []
        while memory.used_nbytes > room_nbytes:
            victim = self._queue.pop()
            if victim is None:
                break
            victims.append(victim)
            memory.remove(victim)
        while memory.used_nbytes > room_nbytes and self._remove_late(op):
            pass
        self._bring_back(victims, room_nbytes)
        self._queue.release(makes)

    def _bring_back(self, victims: list[TensorId], room_nbytes: int) -> None:
        """Undo the evictions that later, larger ones made needless."""
        memory = self._memory
        for tensor in reversed(victims):
            fits = memory.used_nbytes + self._tables.nbytes[tensor] <= room_nbytes
            if fits and memory.find_need(tensor) < NEVER:
                memory.add(tensor)
                self._queue.note(tensor)

    def _remove_late(self, op: OpId) -> bool:
        """Evict a tensor that the stage reads after ``op``, if it can be made again in between.

        The ops that do so join the sweep. Returns whether there is such a tensor.
        """
        tables, memory = self._tables, self._memory
        keys = [
            (self._score_late(tensor, op), tensor)
            for other in self._sweep
            for tensor in self._find_reads(other)
            if memory.live[tensor] and tensor not in tables.reads[op] and tables.nbytes[tensor]
        ]
        score, tensor = min(keys, default=(LOST, TensorId(-1)))
        if score == LOST:
            return False
        memory.remove(tensor)
        self._plan(memory.find_missing((tensor,)))
        return True

    def _score_late(self, tensor: TensorId, op: OpId) -> float:
        """Return the time and memory to make ``tensor`` again by ops after ``op``, for its size.

        `LOST` where they cannot.
        """
        tables, live = self._tables, self._memory.live
        seen = {tables.producers[tensor]}
        pending = [*seen]
        time_ns = made_nbytes = 0
        while pending:
            other = pending.pop()
            if other <= op or not tables.recomputable[other]:
                return LOST
            if other in self._in_sweep:
                continue
            time_ns += tables.time_ns[other]
            made_nbytes += sum(tables.nbytes[made] for made in tables.makes[other])
            for read in tables.reads[other]:
                if not live[read] and tables.producers[read] not in seen:
                    seen.add(tables.producers[read])
                    pending.append(tables.producers[read])
        return (time_ns + 1) * (made_nbytes + 1) / tables.nbytes[tensor] ** 2


class _Queue:
    """What may be evicted, by score.

    Scores are as old as their entries. They mostly grow as time passes, so an entry is scored
    again when it comes up; where a score may have fallen, the tensor has to be noted.
    """

    def __init__(self, memory: Memory, scorer: Scorer) -> None:
        self._memory = memory
        self._scorer = scorer
        self._n_holders = [0] * len(memory.tables.nbytes)
        self._heap: list[tuple[float, TensorId]] = []
        self._scores = [-1.0] * len(memory.tables.nbytes)
        self._noted: dict[TensorId, None] = {}
        self._lost: dict[TensorId, None] = {}
        self._checked = -1
        """The last stage in which the lost tensors were scored again, which takes long."""

    def hold(self, tensors: Iterable[TensorId]) -> None:
        """Keep ``tensors`` from being evicted, once for each call."""
        for tensor in tensors:
            self._n_holders[tensor] += 1

    def release(self, tensors: Iterable[TensorId]) -> None:
        """Undo one `hold`."""
        for tensor in tensors:
            self._n_holders[tensor] -= 1
            self._noted[tensor] = None

    def note(self, tensor: TensorId) -> None:
        """Score ``tensor`` again, and those that can be made from it now that it is there."""
        tables = self._memory.tables
        self._noted[tensor] = None
        readers = tables.readers[tensor]
        end = bisect_left(readers, self._memory.stage)
        for reader in readers[max(0, end - _MOST_NOTED) : end]:
            for made in tables.makes[reader]:
                self._noted[made] = None

    def pop(self) -> TensorId | None:
        """Return the tensor to evict; None: there is nothing to evict."""
        tensor = self._pop()
        if tensor is None and self._checked < self._memory.stage:
            self._checked = self._memory.stage
            self._noted |= self._lost
            self._lost.clear()
            tensor = self._pop()
        return self._find_spent() if tensor is None else tensor

    def _find_spent(self) -> TensorId | None:
        """Return a tensor that nothing needs as long as all that is in memory stays there."""
        for tensor in self._lost:
            if self._may_go(tensor) and not self._memory.is_needed_now(tensor):
                return tensor
        return None

    def _pop(self) -> TensorId | None:
        for tensor in self._noted:
            if self._may_go(tensor):
                self._push(tensor, self._scorer.score(tensor))
        self._noted.clear()
        heap = self._heap
        while heap:
            old, tensor = heapq.heappop(heap)
            if self._scores[tensor] != old or not self._may_go(tensor):
                continue
            score = self._scorer.score(tensor)
            if score <= old or (score < LOST and (not heap or score <= heap[0][0])):
                return tensor
            self._push(tensor, score)
        return None

    def _push(self, tensor: TensorId, score: float) -> None:
        if score < LOST:
            self._scores[tensor] = score
            heapq.heappush(self._heap, (score, tensor))
        else:
            self._lost[tensor] = None

    def _may_go(self, tensor: TensorId) -> bool:
        nbytes = self._memory.tables.nbytes[tensor]
        return self._memory.live[tensor] and not self._n_holders[tensor] and nbytes > 0
