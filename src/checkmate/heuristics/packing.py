"""The fastest order found that fits in its arena.

Begins from orders that fit in bytes, of a budget as given and of smaller ones: which of them needs
how much in the arena nobody knows beforehand. Each is made room in and then relieved of the
recomputes that the arena does not call for.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from checkmate.graph import OpId
from checkmate.heuristics.arena_tables import ArenaTables, make_arena_tables
from checkmate.heuristics.greedy import POLICIES
from checkmate.heuristics.making_room import Order, drop_recomputes, make_room
from checkmate.heuristics.trying import try_policy
from checkmate.problem import Problem

_SHARES = (256, 252, 248, 243, 238, 230, 218)
"""Budgets of bytes to begin from, as parts of 256 of the budget."""
_N_POLICIES = 8
_N_STARTS = 16
"""Orders that are made to fit, the fastest first."""


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
    problem: Problem, budget_nbytes: int, start: Sequence[OpId], limits: PackingLimits
) -> Order | None:
    """Return the fastest order found whose peak and arena fit; None: none was found.

    ``problem`` has an arena and no views; ``start`` is an order to begin from, and is better than
    what is looked for when it fits.
    """
    tables = make_arena_tables(problem, budget_nbytes)
    best: Order | None = None
    best_ns = 0
    for order in chain([tuple(start)], _list_starts(tables, budget_nbytes, limits)):
        found = make_room(tables, order)
        if found is not None:
            found = drop_recomputes(tables, found)
            found_ns = sum(tables.tables.time_ns[op] for op in found)
            if best is None or found_ns < best_ns:
                best, best_ns = found, found_ns
        if limits.is_late or (best is not None and best_ns <= limits.good_ns):
            break
    return best


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
