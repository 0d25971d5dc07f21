"""An order under change: computes come and go, memory is kept up to date.

A compute is named by its *key*, ``stage * n_ops + op``, with ``op <= stage``: ascending keys are
the order itself. An op's *turn* is the key ``op * n_ops + op``; an op that nothing reads until a
later key may leave out its turn. The last op has its turn alone, at the end. The *events* of a
tensor are the keys at which it is made or read; a graph output has one more, after all keys. A
tensor is in memory from where it is made until the last event before it is made again, so that a
compute more or less changes a few ranges of memory.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np

from checkmate.graph import OpId, TensorId
from checkmate.heuristics.tables import Tables


class EditedOrder:
    """The keys in ascending order, the memory in use at each, and the events of each tensor."""

    def __init__(
        self, tables: Tables, keys: Sequence[int], budget_nbytes: int, *, keeps_turns: bool = False
    ) -> None:
        n = tables.n_ops
        self.tables = tables
        self.end = n * n
        """The event at which graph outputs are in memory."""
        self.keys = list(keys)
        self.events = self._find_events()
        self.late = [key for key in self.keys if not self.is_turn(key)]
        """The computes that are not an op's turn; in no order, to pick one at random."""
        self.time_ns = sum(tables.time_ns[key % n] for key in keys)
        self._spots = {key: spot for spot, key in enumerate(self.late)}
        self._budget_nbytes = budget_nbytes
        self._keeps_turns = keeps_turns
        self._made_nbytes = [sum(tables.nbytes[e] for e in made) for made in tables.makes]
        self._used = self._find_used()
        self._log: list[tuple[bool, int]] = []

    def is_turn(self, key: int) -> bool:
        """Return whether ``key`` is the turn of its op."""
        return key % (self.tables.n_ops + 1) == 0

    def is_late(self, key: int) -> bool:
        """Return whether there is a compute at ``key`` that is not its op's turn."""
        return key in self._spots

    def is_make(self, tensor: TensorId, event: int) -> bool:
        """Return whether the tensor is made at ``event``, rather than read or kept."""
        return event < self.end and event % self.tables.n_ops == self.tables.producers[tensor]

    def is_live_after(self, tensor: TensorId, key: int) -> bool:
        """Return whether the tensor is in memory beyond ``key``, at which it has an event."""
        events = self.events[tensor]
        after = bisect_right(events, key)
        return after < len(events) and not self.is_make(tensor, events[after])

    def is_unread(self, tensor: TensorId, key: int) -> bool:
        """Return whether nothing reads the tensor between its last make before ``key`` and it."""
        events = self.events[tensor]
        spot = bisect_left(events, key)
        return spot > 0 and self.is_make(tensor, events[spot - 1])

    def find_make_before(self, key: int) -> int | None:
        """Return the last compute of the same op before ``key``; None: there is none."""
        for tensor in self.tables.makes[key % self.tables.n_ops][:1]:
            events = self.events[tensor]
            for event in reversed(events[: bisect_left(events, key)]):
                if self.is_make(tensor, event):
                    return event
        return None

    def is_needless(self, key: int) -> bool:
        """Return whether the compute at ``key`` serves nothing, and its op has another one.

        A turn is never needless when turns are kept.
        """
        if self._keeps_turns and self.is_turn(key):
            return False
        made = self.tables.makes[key % self.tables.n_ops]
        if any(self.is_live_after(tensor, key) for tensor in made):
            return False
        return any(
            event != key and self.is_make(tensor, event)
            for tensor in made[:1]
            for event in self.events[tensor]
        )

    def find_worst(self) -> tuple[int, int]:
        """Return the key that uses the most memory, and by how much that is above the budget."""
        used = self._used[: len(self.keys)]
        at = int(used.argmax())
        return self.keys[at], int(used[at]) - self._budget_nbytes

    def find_full(self, nbytes: int) -> list[int]:
        """Return the keys that use at least ``nbytes``."""
        at_least = self._used[: len(self.keys)] >= nbytes
        return [self.keys[at] for at in np.flatnonzero(at_least)]

    def count_excess_nbytes(self) -> int:
        """Return what is above the budget, summed over all keys."""
        excess = self._used[: len(self.keys)] - self._budget_nbytes
        return int(np.maximum(excess, 0).sum())

    def insert(self, key: int) -> None:
        """Add a compute at ``key``, of an op of which all inputs were made before it."""
        op = key % self.tables.n_ops
        at = self._insert_key(key, op)
        for tensor in self.tables.makes[op]:
            self._insert_make(tensor, key, at)
        for tensor in self.tables.reads[op]:
            self._insert_read(tensor, key, at)
        self.time_ns += self.tables.time_ns[op]
        if not self.is_turn(key):
            self._spots[key] = len(self.late)
            self.late.append(key)
        self._log.append((True, key))

    def remove(self, key: int) -> None:
        """Take away the compute at ``key``; what it made is retained up to there instead.

        It must have been made before, unless nothing reads it before it is made again.
        """
        op = key % self.tables.n_ops
        at = bisect_left(self.keys, key)
        for tensor in self.tables.reads[op]:
            self._remove_read(tensor, key, at)
        for tensor in self.tables.makes[op]:
            self._remove_make(tensor, key, at)
        end = len(self.keys)
        self._used[at : end - 1] = self._used[at + 1 : end]
        del self.keys[at]
        self.time_ns -= self.tables.time_ns[op]
        if not self.is_turn(key):
            last, spot = self.late.pop(), self._spots.pop(key)
            if last != key:
                self.late[spot] = last
                self._spots[last] = spot
        self._log.append((False, key))

    def mark(self) -> None:
        """Begin a change that `undo` takes back."""
        self._log.clear()

    def is_changed(self) -> bool:
        """Return whether anything was done since `mark`."""
        return bool(self._log)

    def undo(self) -> None:
        """Take back what was done since `mark`."""
        for was_insert, key in tuple(reversed(self._log)):
            if was_insert:
                self.remove(key)
            else:
                self.insert(key)
        self._log.clear()

    def _insert_key(self, key: int, op: int) -> int:
        """Make a place for ``key`` with what is in memory there beside the outputs of ``op``."""
        tables, at, end = self.tables, bisect_left(self.keys, key), len(self.keys)
        if end == len(self._used):
            self._used = np.concatenate((self._used, np.zeros_like(self._used)))
        follower = self.keys[at] % tables.n_ops
        own_nbytes = tables.workspace_nbytes[follower] + self._made_nbytes[follower]
        nbytes = self._used[at] - own_nbytes + tables.workspace_nbytes[op]
        self._used[at + 1 : end + 1] = self._used[at:end]
        self._used[at] = nbytes
        self.keys.insert(at, key)
        return at

    def _insert_make(self, tensor: TensorId, key: int, at: int) -> None:
        events, nbytes = self.events[tensor], self.tables.nbytes[tensor]
        spot = bisect_left(events, key)
        if self._is_live_before(tensor, spot):
            self._used[bisect_right(self.keys, events[spot - 1]) : at] -= nbytes
        else:
            self._used[at] += nbytes
        events.insert(spot, key)

    def _insert_read(self, tensor: TensorId, key: int, at: int) -> None:
        events = self.events[tensor]
        spot = bisect_left(events, key)
        if not self._is_live_before(tensor, spot):
            low = bisect_right(self.keys, events[spot - 1])
            self._used[low : at + 1] += self.tables.nbytes[tensor]
        events.insert(spot, key)

    def _remove_read(self, tensor: TensorId, key: int, at: int) -> None:
        events = self.events[tensor]
        spot = bisect_left(events, key)
        del events[spot]
        if not self._is_live_before(tensor, spot):
            low = bisect_right(self.keys, events[spot - 1])
            self._used[low : at + 1] -= self.tables.nbytes[tensor]

    def _remove_make(self, tensor: TensorId, key: int, at: int) -> None:
        events = self.events[tensor]
        spot = bisect_left(events, key)
        del events[spot]
        if self._is_live_before(tensor, spot):
            low = bisect_right(self.keys, events[spot - 1])
            self._used[low:at] += self.tables.nbytes[tensor]

    def _is_live_before(self, tensor: TensorId, spot: int) -> bool:
        """Return whether the tensor is in memory up to its event number ``spot``."""
        events = self.events[tensor]
        return spot < len(events) and not self.is_make(tensor, events[spot])

    def _find_events(self) -> list[list[int]]:
        tables = self.tables
        events: list[list[int]] = [[] for _ in tables.nbytes]
        for key in self.keys:
            op = key % tables.n_ops
            for tensor in (*tables.reads[op], *tables.makes[op]):
                events[tensor].append(key)
        for output in tables.outputs:
            events[output].append(self.end)
        return events

    def _find_used(self) -> np.ndarray:
        """Return the memory in use per key, with room for more keys."""
        tables, keys, n = self.tables, self.keys, self.tables.n_ops
        used = np.zeros(2 * len(keys) + 16, dtype=np.int64)
        used[: len(keys)] = [
            tables.resident_nbytes + tables.workspace_nbytes[key % n] for key in keys
        ]
        for index, events in enumerate(self.events):
            tensor, nbytes = TensorId(index), tables.nbytes[index]
            low = 0
            for event in events:
                if self.is_make(tensor, event):
                    low = bisect_left(keys, event)
                high = bisect_right(keys, event)
                used[low:high] += nbytes
                low = high
        return used


def find_keys(n: int, order: Sequence[OpId]) -> tuple[int, ...] | None:
    """Return the keys of ``order``, of ``n`` ops; None: it has none."""
    keys: list[int] = []
    stage, last = 0, -1
    for op in order:
        stage = max(op, stage if op > last else stage + 1)
        last = op
        keys.append(stage * n + op)
    is_last = n > 0 and keys.count(keys[-1]) == 1 and keys[-1] == n * n - 1
    return tuple(keys) if is_last else None
