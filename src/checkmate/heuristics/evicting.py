"""One run of the graph under a budget that evicts tensors when memory is short.

The ops run in graph order. Before an op runs, whatever it reads and is not in memory is made
again in one ascending sweep over its missing ancestors. When an instruction would not fit,
live tensors that the stage does not read are evicted, the lowest score first:

    weight * recompute_ns^a / (nbytes * distance^b)

where ``recompute_ns`` is the time of the ops that would have to run again to have the tensor
back, and ``distance`` the number of ops until it is needed. Tensors stay in memory after their
use for as long as there is room, so neighbours that need the same chain share one sweep.

Kirisame et al., "Dynamic Tensor Rematerialization", ICLR 2021, section 3 evicts by a score of
the same shape; theirs looks back (staleness), ours looks forward, since the graph is known.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from checkmate.graph import OpId, TensorId
from checkmate.heuristics.tables import Tables

_NEVER = 1 << 60
_LOST = float("inf")
_MOST_RUNS = 20
"""A run gives up when it takes this many times the time of running each op once."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How a run chooses what to evict."""

    time_power: float = 1.0
    distance_power: float = 1.0
    chain_weight: float = 1.0
    """How much the recomputes of missing ancestors count beside the op's own."""
    backward_weight: float = 1.0
    """Multiplies the scores of tensors made by backward ops; infinite: none is evicted."""
    weights: tuple[float, ...] = ()
    """Per tensor; empty: all one."""


def run_evicting(
    tables: Tables, budget_nbytes: int, policy: Policy, useless_nbytes: int
) -> tuple[OpId, ...]:
    """Return an order that stays within ``budget_nbytes`` wherever the policy finds a way to.

    Where it finds none, the instruction runs all the same: the caller measures the peak. A run
    that uses ``useless_nbytes``, or recomputes beyond all measure, evicts nothing any more.
    """
    return _Run(tables, policy, budget_nbytes, useless_nbytes).order


def _weigh(tables: Tables, policy: Policy) -> list[float]:
    weights = list(policy.weights) or [1.0] * len(tables.nbytes)
    for tensor, producer in enumerate(tables.producers):
        if tables.backward[producer]:
            weights[tensor] *= policy.backward_weight
    return weights


class _Run:
    """Memory during the run, and what the current stage still has to read."""

    def __init__(
        self, tables: Tables, policy: Policy, budget_nbytes: int, useless_nbytes: int
    ) -> None:
        n_tensors = len(tables.nbytes)
        self._tables = tables
        self._policy = policy
        self._budget_nbytes = budget_nbytes
        self._useless_nbytes = useless_nbytes
        self._left_ns = _MOST_RUNS * sum(tables.time_ns)
        self._used_nbytes = tables.resident_nbytes
        self._live = [producer < 0 for producer in tables.producers]
        self._cursor = [0] * n_tensors
        self._last_use = [_NEVER] * n_tensors
        for output in tables.outputs:
            self._last_use[output] = tables.n_ops - 1
        self._pending = [0] * n_tensors
        self._sweep: list[OpId] = []
        self._in_sweep: set[OpId] = set()
        self._stage = OpId(0)
        self._heap: list[tuple[float, TensorId]] = []
        self._queued = [-1.0] * n_tensors
        self._changed: dict[TensorId, None] = {}
        self._weights = _weigh(tables, policy)
        order: list[OpId] = []
        for stage in range(tables.n_ops):
            self._run_stage(OpId(stage), order)
        self.order = tuple(order)

    def _run_stage(self, stage: OpId, order: list[OpId]) -> None:
        self._stage = stage
        self._in_sweep.clear()
        self._plan(self._find_missing(self._find_uses(stage)))
        self._plan((stage,))
        while self._sweep:
            op = heapq.heappop(self._sweep)
            self._make_room(op)
            self._compute(op)
            order.append(op)
        for tensor in self._tables.reads[stage]:
            self._cursor[tensor] += 1
        self._release(self._find_uses(stage))

    def _find_uses(self, stage: OpId) -> tuple[TensorId, ...]:
        """Return what must be in memory while the frontier op of ``stage`` runs."""
        reads = self._tables.reads[stage]
        if stage < self._tables.n_ops - 1:
            return reads
        made = self._tables.makes[stage]
        others = (t for t in self._tables.outputs if t not in made)
        return tuple(dict.fromkeys((*reads, *others)))

    def _find_missing(self, tensors: Iterable[TensorId]) -> list[OpId]:
        """Return the ops that have to run, in graph order, to have ``tensors`` in memory."""
        producers, reads, live = self._tables.producers, self._tables.reads, self._live
        found: set[OpId] = set()
        pending = [producers[t] for t in tensors if not live[t]]
        while pending:
            op = pending.pop()
            if op not in found:
                found.add(op)
                pending += [producers[t] for t in reads[op] if not live[t]]
        return sorted(found)

    def _plan(self, ops: Iterable[OpId]) -> None:
        """Add ``ops`` to the sweep and hold what they read."""
        for op in ops:
            if op in self._in_sweep:
                continue
            self._in_sweep.add(op)
            heapq.heappush(self._sweep, op)
            for tensor in self._find_uses(op) if op == self._stage else self._tables.reads[op]:
                self._pending[tensor] += 1

    def _compute(self, op: OpId) -> None:
        tables = self._tables
        self._left_ns -= tables.time_ns[op]
        for tensor in tables.makes[op]:
            if not self._live[tensor]:
                self._live[tensor] = True
                self._used_nbytes += tables.nbytes[tensor]
            self._changed[tensor] = None
            if op < self._stage:
                self._note_cheaper(tensor)
        if op < self._stage:
            self._release(tables.reads[op])
        if self._used_nbytes + tables.workspace_nbytes[op] >= self._useless_nbytes:
            self._left_ns = -1

    def _note_cheaper(self, tensor: TensorId) -> None:
        """Have the live tensors scored again that could be made from ``tensor``."""
        for reader in self._tables.readers[tensor]:
            if reader >= self._stage:
                break
            for made in self._tables.makes[reader]:
                self._changed[made] = None

    def _release(self, tensors: Iterable[TensorId]) -> None:
        for tensor in tensors:
            self._pending[tensor] -= 1
            self._changed[tensor] = None

    # What follows decides what leaves memory.

    def _make_room(self, op: OpId) -> None:
        tables = self._tables
        made_nbytes = sum(tables.nbytes[t] for t in tables.makes[op] if not self._live[t])
        room_nbytes = self._budget_nbytes - made_nbytes - tables.workspace_nbytes[op]
        if self._used_nbytes <= room_nbytes or self._left_ns < 0:
            return
        for tensor in tables.makes[op]:
            self._pending[tensor] += 1
        victims: list[TensorId] = []
        self._queue_changed()
        while self._used_nbytes > room_nbytes:
            victim = self._pop_cheapest()
            if victim is None:
                victim = self._find_late(op)
                if victim is None:
                    break
            else:
                victims.append(victim)
            self._evict(victim)
        self._bring_back(victims, room_nbytes)
        for tensor in tables.makes[op]:
            self._pending[tensor] -= 1

    def _evict(self, tensor: TensorId) -> None:
        self._live[tensor] = False
        self._used_nbytes -= self._tables.nbytes[tensor]

    def _bring_back(self, victims: list[TensorId], room_nbytes: int) -> None:
        """Undo the evictions that later, larger ones made needless."""
        for tensor in reversed(victims):
            nbytes = self._tables.nbytes[tensor]
            if self._used_nbytes + nbytes <= room_nbytes:
                self._live[tensor] = True
                self._used_nbytes += nbytes
                self._changed[tensor] = None

    def _queue_changed(self) -> None:
        for tensor in self._changed:
            if self._is_candidate(tensor):
                self._queue(tensor, self._score(tensor))
        self._changed.clear()

    def _is_candidate(self, tensor: TensorId) -> bool:
        return self._live[tensor] and not self._pending[tensor] and self._tables.nbytes[tensor] > 0

    def _queue(self, tensor: TensorId, score: float) -> None:
        if score < _LOST:
            self._queued[tensor] = score
            heapq.heappush(self._heap, (score, tensor))

    def _pop_cheapest(self) -> TensorId | None:
        """Return the live tensor of the lowest score; None: there is nothing to evict.

        Scores in the heap are as old as their entries. They mostly grow with time, so an entry
        is scored again when it comes up.
        """
        heap = self._heap
        while heap:
            old, tensor = heapq.heappop(heap)
            if self._queued[tensor] != old or not self._is_candidate(tensor):
                continue
            score = self._score(tensor)
            if score <= old or (score < _LOST and (not heap or score <= heap[0][0])):
                return tensor
            self._queue(tensor, score)
        return None

    def _score(self, tensor: TensorId) -> float:
        policy = self._policy
        need = self._find_need(tensor)
        if need == _NEVER:
            return 0.0
        time_ns = self._find_recompute_ns(tensor)
        if time_ns == _LOST:
            return _LOST
        distance = max(1, need - self._stage)
        score: float = (time_ns + 1) ** policy.time_power / (
            self._tables.nbytes[tensor] * distance**policy.distance_power
        )
        return score * self._weights[tensor]

    def _find_next_use(self, tensor: TensorId) -> int:
        """Return the next op to read ``tensor`` for the first time."""
        readers, at = self._tables.readers[tensor], self._cursor[tensor]
        return readers[at] if at < len(readers) else self._last_use[tensor]

    def _find_need(self, tensor: TensorId) -> int:
        """Return the stage that needs ``tensor`` next, be it to make another one again."""
        tables, live = self._tables, self._live
        need = self._find_next_use(tensor)
        seen = {tensor}
        pending = [tensor]
        while pending:
            for reader in tables.readers[pending.pop()]:
                if reader >= self._stage:
                    break
                for made in tables.makes[reader]:
                    if made not in seen and not live[made]:
                        seen.add(made)
                        need = min(need, self._find_next_use(made))
                        pending.append(made)
        return need

    def _find_recompute_ns(self, tensor: TensorId) -> float:
        """Return the time to make ``tensor`` again, or that it would be lost."""
        tables, live = self._tables, self._live
        origin = tables.producers[tensor]
        seen = {origin}
        pending = [origin]
        chain_ns = 0
        while pending:
            op = pending.pop()
            if not tables.recomputable[op]:
                return _LOST
            chain_ns += tables.time_ns[op]
            for read in tables.reads[op]:
                producer = tables.producers[read]
                if not live[read] and producer not in seen:
                    seen.add(producer)
                    pending.append(producer)
        own_ns = tables.time_ns[origin]
        return own_ns + self._policy.chain_weight * (chain_ns - own_ns)

    def _find_late(self, op: OpId) -> TensorId | None:
        """Return a tensor that the stage reads later and can make again after ``op``.

        The ops that do so join the sweep.
        """
        tables = self._tables
        best: tuple[float, TensorId] | None = None
        for other in [*self._sweep]:
            for tensor in self._find_uses(other) if other == self._stage else tables.reads[other]:
                if self._live[tensor] and tensor not in tables.reads[op] and tables.nbytes[tensor]:
                    key = (self._find_late_ns(tensor, op) / tables.nbytes[tensor], tensor)
                    best = key if best is None else min(best, key)
        if best is None or best[0] == _LOST:
            return None
        self._live[best[1]] = False
        self._plan(self._find_missing((best[1],)))
        self._live[best[1]] = True
        return best[1]

    def _find_late_ns(self, tensor: TensorId, op: OpId) -> float:
        tables = self._tables
        if tables.producers[tensor] <= op:
            return _LOST
        self._live[tensor] = False
        ops = self._find_missing((tensor,))
        self._live[tensor] = True
        if ops[0] <= op or not all(tables.recomputable[other] for other in ops):
            return _LOST
        return sum(tables.time_ns[other] for other in ops if other not in self._in_sweep)
