"""Changes of an order: a recompute is removed, or a tensor is dropped where memory is short."""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections.abc import Iterator

from checkmate.graph import OpId, TensorId
from checkmate.heuristics.editing import EditedOrder
from checkmate.heuristics.tables import Tables

_PICKED = 6
"""Tensors that are compared before one is dropped."""
_AGAIN = 0.25
"""How often an input of a recompute is made again too, rather than retained up to there."""
_NEAR = 3
"""An input that was in memory so few stages before is never made again."""
_DEEPEST = 6


class Moves:
    """What can be done to one order."""

    def __init__(self, edited: EditedOrder, idle: IdleTensors, rng: random.Random) -> None:
        self._tables = edited.tables
        self._edited = edited
        self._idle = idle
        self._rng = rng

    def drop_at(self, key: int) -> None:
        """Drop one of the tensors that are in memory at ``key`` but not read there."""
        picked = self._idle.pick(self._edited, self._rng, key)
        again = min(picked, key=self._score, default=None)
        if again is not None:
            self._compute(again[1])

    def _score(self, picked: tuple[TensorId, int]) -> float:
        """Return what it costs to drop a tensor, for its size; roughly, and with noise."""
        tensor, key = picked
        tables, edited = self._tables, self._edited
        op, stage = key % tables.n_ops, key // tables.n_ops
        cost_ns = 1.0
        if not edited.is_unread(tensor, key):
            cost_ns += tables.time_ns[op]
        for read in tables.reads[op]:
            events = edited.events[read]
            spot = bisect_left(events, key)
            if spot == len(events) or edited.is_make(read, events[spot]):
                absent = stage - events[spot - 1] // tables.n_ops
                share = min(1.0, absent * 0.04)
                cost_ns += 0.5 * share * tables.time_ns[tables.producers[read]]
        return cost_ns / tables.nbytes[tensor] * math.exp(self._rng.gauss(0.0, 1.0))

    def _compute(self, key: int, depth: int = 0) -> None:
        """Insert a compute, and before it in its stage what it reads and nothing made yet.

        Perhaps also some of what it reads and is not in memory any more. If the compute of the op
        before serves nothing now, it is cut: the op runs later instead of twice.
        """
        tables, edited, n = self._tables, self._edited, self._tables.n_ops
        for new in (*self._find_unmade(key), key):
            edited.insert(new)
        for read in tables.reads[key % n]:
            if depth < _DEEPEST and not edited.is_live_after(read, key):
                again = key // n * n + tables.producers[read]
                if self._may_repeat(read, again) and self._rng.random() < _AGAIN:
                    self._compute(again, depth + 1)
        before = edited.find_make_before(key)
        if before is not None and edited.is_needless(before):
            self._cut(before)

    def _find_unmade(self, key: int) -> list[int]:
        """Return the keys, in the stage of ``key``, of ancestors that have not run before it."""
        tables, events, n = self._tables, self._edited.events, self._tables.n_ops
        found: set[OpId] = set()
        pending = [OpId(key % n)]
        while pending:
            for read in tables.reads[pending.pop()]:
                producer = tables.producers[read]
                if events[read][0] > key and producer not in found:
                    found.add(producer)
                    pending.append(producer)
        return [key // n * n + op for op in sorted(found)]

    def _may_repeat(self, tensor: TensorId, again: int) -> bool:
        """Return whether the tensor may be made at ``again``, and was gone for long by then."""
        n, events = self._tables.n_ops, self._edited.events[tensor]
        spot = bisect_left(events, again)
        if events[spot] == again or not self._tables.recomputable[again % n]:
            return False
        return again // n - events[spot - 1] // n > _NEAR

    def remove(self, key: int) -> None:
        """Remove a late compute; if it was its op's first, the op takes its turn again."""
        if self._edited.find_make_before(key) is None:
            op = key % self._tables.n_ops
            self._compute(op * self._tables.n_ops + op, _DEEPEST)
        self._cut(key)

    def _cut(self, key: int) -> None:
        """Take a compute away, and those that served it alone."""
        edited, tables = self._edited, self._tables
        edited.remove(key)
        pending = [(read, key) for read in tables.reads[key % tables.n_ops]]
        while pending:
            tensor, key = pending.pop()
            events = edited.events[tensor]
            before = events[bisect_left(events, key) - 1]
            if edited.is_make(tensor, before) and edited.is_needless(before):
                edited.remove(before)
                pending += [(read, before) for read in tables.reads[before % tables.n_ops]]


class IdleTensors:
    """What may be in memory in a stage, to pick from at random."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        kept = frozenset(tables.outputs)
        self._last_uses = [
            tables.n_ops if e in kept else max(readers, default=-1)
            for e, readers in enumerate(tables.readers)
        ]
        self._of_stage: dict[int, list[TensorId]] = {}

    def pick(
        self, edited: EditedOrder, rng: random.Random, key: int
    ) -> Iterator[tuple[TensorId, int]]:
        """Yield some tensors in memory at ``key`` but not read, and where to make them again."""
        tensors = self._find(key // self._tables.n_ops)
        for _ in range(_PICKED if tensors else 0):
            tensor = tensors[int(rng.random() * len(tensors))]
            again = self._find_place(edited, tensor, key)
            if again is not None:
                yield tensor, again

    def _find(self, stage: int) -> list[TensorId]:
        if stage not in self._of_stage:
            tables = self._tables
            self._of_stage[stage] = [
                TensorId(e)
                for e, (producer, last) in enumerate(
                    zip(tables.producers, self._last_uses, strict=True)
                )
                if 0 <= producer < stage <= last
                and tables.recomputable[producer]
                and tables.nbytes[e]
            ]
        return self._of_stage[stage]

    def _find_place(self, edited: EditedOrder, tensor: TensorId, key: int) -> int | None:
        """Return the key in the stage of the next read; None: the tensor is not idle at ``key``."""
        n, events = self._tables.n_ops, edited.events[tensor]
        spot = bisect_left(events, key)
        if spot == len(events) or events[spot] == key or edited.is_make(tensor, events[spot]):
            return None
        stage = min(events[spot] // n, n - 1)
        again = stage * n + self._tables.producers[tensor]
        return again if key < again < events[spot] else None
