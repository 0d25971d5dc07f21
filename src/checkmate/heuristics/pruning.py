"""Recomputes that turn out needless: retain instead, where memory allows.

The memory of an order is laid out by position, so that taking one recompute away is a change of
a few ranges: what it made stays in memory since its use before, and what it read is let go
earlier. Recomputes that nothing reads any more go with it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence

import numpy as np

from checkmate.graph import OpId, TensorId
from checkmate.heuristics.tables import Tables

_GONE_NBYTES = 1 << 61


def prune(tables: Tables, order: Sequence[OpId], budget_nbytes: int) -> tuple[OpId, ...]:
    """Return ``order`` without recomputes that the budget does not call for.

    ``order`` must fit the budget. No single recompute can be taken from the result.
    """
    layout = Layout(tables, order)
    while True:
        candidates = sorted(layout.find_recomputes(), key=layout.rank, reverse=True)
        removed = [layout.try_remove(position, budget_nbytes) for position in candidates]
        if not any(removed):
            return layout.order


class Layout:
    """An order by position: the memory in use, and per tensor where it is made and read."""

    def __init__(self, tables: Tables, order: Sequence[OpId]) -> None:
        self._tables = tables
        self._ops = tuple(order)
        self._gone = [False] * len(order)
        self._is_output = [False] * len(tables.nbytes)
        for output in tables.outputs:
            self._is_output[output] = True
        self._first: dict[OpId, int] = {}
        self._events: list[list[int]] = [[] for _ in tables.nbytes]
        self._computes: list[list[int]] = [[] for _ in tables.nbytes]
        """Those of the events of a tensor that make it."""
        for position, op in enumerate(order):
            self._first.setdefault(op, position)
            for tensor in (*tables.reads[op], *tables.makes[op]):
                self._events[tensor].append(position)
            for tensor in tables.makes[op]:
                self._computes[tensor].append(position)
        self.used_nbytes = self._lay_out()
        self._log: list[tuple[int, int, int]] = []
        self._cut: list[tuple[TensorId, int]] = []
        self._removed: list[int] = []

    @property
    def order(self) -> tuple[OpId, ...]:
        """The ops that are left."""
        return tuple(op for op, gone in zip(self._ops, self._gone, strict=True) if not gone)

    def find_recomputes(self) -> list[int]:
        """Return the positions of all recomputes."""
        return [
            position
            for position, op in enumerate(self._ops)
            if self._first[op] != position and not self._gone[position]
        ]

    def rank(self, position: int) -> tuple[float, int]:
        """Return how much a recompute costs for the memory that it saves."""
        tables, op = self._tables, self._ops[position]
        saved = 1
        for tensor in tables.makes[op]:
            events = self._events[tensor]
            at = bisect_left(events, position)
            saved += tables.nbytes[tensor] * (position - events[at - 1])
        return tables.time_ns[op] / saved, position

    def try_remove(self, position: int, budget_nbytes: int) -> bool:
        """Take the recompute at ``position`` away, unless that needs more than the budget."""
        if self._gone[position]:
            return False
        self._log.clear()
        self._cut.clear()
        self._removed.clear()
        self._remove(position)
        grown = [(low, high) for low, high, nbytes in self._log if nbytes > 0]
        if all(int(self.used_nbytes[low:high].max()) <= budget_nbytes for low, high in grown):
            return True
        self.restore()
        return False

    def _lay_out(self) -> np.ndarray:
        """Return the memory in use per position."""
        tables = self._tables
        change = np.zeros(len(self._ops) + 1, dtype=np.int64)
        for tensor, computes in enumerate(self._computes):
            nbytes = tables.nbytes[tensor]
            for position in computes:
                change[position] += nbytes
                change[self._find_end(TensorId(tensor), position) + 1] -= nbytes
        workspace = np.array([tables.workspace_nbytes[op] for op in self._ops], dtype=np.int64)
        used: np.ndarray = tables.resident_nbytes + np.cumsum(change[:-1]) + workspace
        return used

    def _find_end(self, tensor: TensorId, position: int) -> int:
        """Return the last position at which what is made at ``position`` is in memory."""
        events, computes = self._events[tensor], self._computes[tensor]
        later = bisect_right(computes, position)
        if later < len(computes):
            return events[bisect_left(events, computes[later]) - 1]
        return len(self._ops) - 1 if self._is_output[tensor] else events[-1]

    def _remove(self, position: int) -> None:
        """Take the recompute at ``position`` away, and those that served it alone."""
        pending = [position]
        while pending:
            pending += self._remove_one(pending.pop())

    def _remove_one(self, position: int) -> list[int]:
        """Take one recompute away; return those that are needless without it."""
        if self._gone[position]:
            return []
        tables, op = self._tables, self._ops[position]
        self._gone[position] = True
        self._removed.append(position)
        self._add(position, position + 1, -_GONE_NBYTES)
        for tensor in tables.makes[op]:
            events = self._events[tensor]
            at = bisect_left(events, position)
            if self._find_end(tensor, position) > position:
                self._add(events[at - 1] + 1, position, tables.nbytes[tensor])
            self._cut_event(tensor, at)
        made = (tensor for tensor in tables.reads[op] if tables.producers[tensor] >= 0)
        served = (self._unread(tensor, position) for tensor in made)
        return [before for before in served if before is not None]

    def _unread(self, tensor: TensorId, position: int) -> int | None:
        """Take away the read at ``position``; return the recompute that was there for it alone."""
        events = self._events[tensor]
        at = bisect_left(events, position)
        before = events[at - 1]
        self._cut_event(tensor, at)
        computes = self._computes[tensor]
        start = computes[bisect_right(computes, before) - 1]
        end = self._find_end(tensor, start)
        if end < position:
            self._add(end + 1, position + 1, -self._tables.nbytes[tensor])
        is_alone = end == start == before and self._is_needless(before)
        return before if is_alone else None

    def _is_needless(self, position: int) -> bool:
        """Return whether nothing reads what the recompute at ``position`` made."""
        op = self._ops[position]
        if self._first[op] == position or self._gone[position]:
            return False
        return all(
            self._find_end(tensor, position) <= position for tensor in self._tables.makes[op]
        )

    def _add(self, low: int, high: int, nbytes: int) -> None:
        if low < high and nbytes:
            self.used_nbytes[low:high] += nbytes
            self._log.append((low, high, nbytes))

    def _cut_event(self, tensor: TensorId, at: int) -> None:
        position = self._events[tensor].pop(at)
        self._cut.append((tensor, position))
        if self._ops[position] == self._tables.producers[tensor]:
            self._computes[tensor].remove(position)

    def restore(self) -> None:
        """Undo the last removal."""
        for low, high, nbytes in self._log:
            self.used_nbytes[low:high] -= nbytes
        for tensor, position in reversed(self._cut):
            insort(self._events[tensor], position)
            if self._ops[position] == self._tables.producers[tensor]:
                insort(self._computes[tensor], position)
        for position in self._removed:
            self._gone[position] = False
