"""The fastest order found that fits in its arena.

Begins from orders that fit in bytes, of a budget as given and of smaller ones: which of them needs
how much in the arena nobody knows beforehand. Each is made room in and then relieved of the
recomputes that the arena does not call for. The fastest is then improved: one of its recomputes is
taken away, and room is made for it elsewhere.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from checkmate.graph import OpId, TensorId
from checkmate.heuristics.arena_tables import ArenaTables, make_arena_tables
from checkmate.heuristics.greedy import POLICIES
from checkmate.heuristics.making_room import Order, drop_recomputes, make_room, sum_ns
from checkmate.heuristics.pruning import Layout
from checkmate.heuristics.trying import try_policy
from checkmate.problem import Problem

_SHARES = (256, 252, 248, 243, 238, 230, 218)
"""Budgets of bytes to begin from, as parts of 256 of the budget."""
_N_POLICIES = 8
_N_STARTS = 16
"""Orders that are made to fit, the fastest first."""
_N_TRIALS = 60
"""Recomputes that are taken away to see whether others do."""
_SLACK = 1.5
"""How much more overhead than the best an order may have on the way to a better one."""
_MARGINS = (0, 4, 16, 48)
"""What is left free for what is not known here, as parts of 1024 of the arena, in turn."""
_NO_LIMIT_NBYTES = 1 << 60


Accepts = Callable[[Order], bool]


def _accept_all(_: Order) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class PackingLimits:
    """When to stop."""

    good_ns: int = 0
    """An order as fast as this is good enough."""
    deadline_s: float | None = None
    """On the monotonic clock; None: no clock."""

    @property
    def is_late(self) -> bool:
        """Whether the time is over."""
        return self.deadline_s is not None and time.monotonic() >= self.deadline_s


def pack(
    problem: Problem,
    budget_nbytes: int,
    starts: Sequence[Sequence[OpId]],
    limits: PackingLimits,
    accepts: Accepts = _accept_all,
) -> Order | None:
    """Return the fastest order found whose peak and arena fit; None: none was found.

    ``problem`` has an arena and no views; ``starts`` are orders to begin from. What is found
    ``accepts`` decides last, as it may know of more that goes into the arena.
    """
    tables = make_arena_tables(problem, budget_nbytes)
    best = _Best(tables, limits, accepts)
    for order in chain(map(tuple, starts), _list_starts(tables, budget_nbytes, limits)):
        best.offer(order)
        if best.is_done:
            return best.order
    n_left = _N_TRIALS
    while n_left > 0 and best.order is not None:
        before = best.order
        for order, kept in _take_one_away(tables, before):
            n_left -= 1
            best.offer(order, kept)
            if best.is_done:
                return best.order
            if best.order is not before or not n_left:
                break
        else:
            break
    return best.order


class _Best:
    """The fastest order so far that fits."""

    def __init__(self, tables: ArenaTables, limits: PackingLimits, accepts: Accepts) -> None:
        self._tables, self._limits, self._accepts = tables, limits, accepts
        self.order: Order | None = None
        self._time_ns = 0

    @property
    def is_done(self) -> bool:
        """Whether it is good enough, or too late."""
        is_good = self.order is not None and self._time_ns <= self._limits.good_ns
        return is_good or self._limits.is_late

    def offer(self, order: Order, kept: Sequence[TensorId] = ()) -> None:
        """Make ``order`` fit, and take it if it is faster then.

        What is not accepted is made to fit again, in less.
        """
        nbytes = self._tables.limit_nbytes
        for part in _MARGINS:
            tables = replace(self._tables, limit_nbytes=nbytes - nbytes * part // 1024)
            found = make_room(tables, order, self._most_ns, kept)
            if found is None:
                return
            found = drop_recomputes(tables, found)
            time_ns = sum_ns(tables.tables, found)
            if self.order is not None and time_ns >= self._time_ns:
                return
            if self._accepts(found):
                self.order, self._time_ns = found, time_ns
                return

    @property
    def _most_ns(self) -> float:
        """The time above which an order is not worth going on with."""
        least_ns = sum(self._tables.tables.time_ns)
        return math.inf if self.order is None else least_ns + _SLACK * (self._time_ns - least_ns)


def _list_starts(tables: ArenaTables, budget_nbytes: int, limits: PackingLimits) -> Iterator[Order]:
    """Yield orders within budgets of bytes, the fastest first."""
    found: dict[Order, int] = {}
    for share in _SHARES:
        nbytes = budget_nbytes * share // 256
        for policy in POLICIES[:_N_POLICIES]:
            if limits.is_late:
                break
            tried = try_policy(tables.tables, policy, nbytes, nbytes + 1)
            if tried.peak_nbytes <= nbytes:
                found.setdefault(tried.order, tried.time_ns)
    yield from sorted(found, key=lambda order: found[order])[:_N_STARTS]


def _take_one_away(
    tables: ArenaTables, order: Order
) -> Iterator[tuple[Order, tuple[TensorId, ...]]]:
    """Yield ``order`` without one recompute, and what that made; the slowest first."""
    times = tables.tables.time_ns
    positions = Layout(tables.tables, order).find_recomputes()
    for position in sorted(positions, key=lambda at: (-times[order[at]], at)):
        layout = Layout(tables.tables, order)
        layout.try_remove(position, _NO_LIMIT_NBYTES)
        yield layout.order, tables.tables.makes[order[position]]
