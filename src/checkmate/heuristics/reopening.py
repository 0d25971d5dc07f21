"""A few ops of an order whose computes are up for choice again: more of them, fewer, or later.

Ops are reopened around some that are drawn: any, some that are recomputed, or those whose outputs
wait in memory at a moment when it is nearly full. A reopened op may be left out wherever it runs,
and may run in every stage in which something reads what it makes, reopened ops included. So may a
first run, which then is a late one. All other computes stay, but for some recomputes that may turn
out to be needless.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from checkmate.graph import OpId, TensorId
from checkmate.heuristics.editing import EditedOrder
from checkmate.heuristics.tables import Tables

_FULL = 0.97
"""From this share of the budget on, memory is nearly full."""
_MOMENT = 0.5
"""How often ops are drawn that have to do with a moment of full memory."""
_MOST_CENTRES = 3
_OPS_PER_WAITING = 6
"""Of so many reopened ops one makes what waits in memory at the moment."""
_MOST_OTHERS = 300
"""Other recomputes that may be left out."""
_LEAST_APART = 2
"""Stages between a first run and a recompute, at least: closer ones are of no use."""


@dataclass(frozen=True, slots=True)
class Reopened:
    """Keys as `EditedOrder` has them, those that may be left out among them."""

    keys: tuple[int, ...]
    """Ascending."""
    optional: frozenset[int]


class Reopener:
    """Draws ops of one problem."""

    def __init__(self, tables: Tables, budget_nbytes: int, rng: random.Random) -> None:
        self._tables = tables
        self._budget_nbytes = budget_nbytes
        self._rng = rng
        self._movable = [
            OpId(k) for k in range(tables.n_ops - 1) if tables.recomputable[k] and tables.makes[k]
        ]
        self._neighbours = _find_neighbours(tables)
        self._readers = [
            frozenset(reader for e in made for reader in tables.readers[e]) for made in tables.makes
        ]

    def reopen(self, keys: Sequence[int], n_reopened: int) -> Reopened:
        """Return ``keys`` and what comes with about ``n_reopened`` ops being open again."""
        n, ops = self._tables.n_ops, frozenset(self._movable)
        if n_reopened < len(ops):
            ops = self._spread(self._draw(keys, n_reopened), n_reopened)
        pool = set(keys)
        for op in sorted(ops, reverse=True):
            pool.update(self._find_stages(op, pool))
        optional = {key for key in pool if key % n in ops}
        others = [key for key in keys if key % (n + 1) and key % n not in ops]
        optional.update(self._rng.sample(others, min(len(others), _MOST_OTHERS)))
        return Reopened(tuple(sorted(pool)), frozenset(optional))

    def has_all(self, reopened: Reopened) -> bool:
        """Return whether every op that may move is open again."""
        return len({key % self._tables.n_ops for key in reopened.optional}) == len(self._movable)

    def _find_stages(self, op: OpId, pool: set[int]) -> list[int]:
        """Return keys of ``op`` just before what reads it, and at the end if it is an output."""
        n, readers = self._tables.n_ops, self._readers[op]
        stages = {key // n for key in pool if key % n in readers}
        if not set(self._tables.outputs).isdisjoint(self._tables.makes[op]):
            stages.add(n - 1)
        return [stage * n + op for stage in stages if stage - op >= _LEAST_APART]

    def _draw(self, keys: Sequence[int], n_reopened: int) -> list[OpId]:
        n, rng = self._tables.n_ops, self._rng
        late = [OpId(key % n) for key in keys if key % (n + 1)]
        if rng.random() < _MOMENT:
            return self._draw_at_moment(keys, max(1, n_reopened // _OPS_PER_WAITING))
        source = late if late and rng.random() < 0.5 else self._movable
        return [rng.choice(source) for _ in range(rng.randint(1, _MOST_CENTRES))]

    def _draw_at_moment(self, keys: Sequence[int], n_drawn: int) -> list[OpId]:
        """Return ops that make what waits while memory is nearly full, and the one that runs."""
        edited = EditedOrder(self._tables, keys, self._budget_nbytes)
        full = edited.find_full(int(_FULL * self._budget_nbytes))
        key = self._rng.choice(full or edited.keys)
        waiting = [
            op
            for op in self._movable
            if any(_waits(edited, e, key) for e in self._tables.makes[op])
        ]
        drawn = self._rng.sample(waiting, min(n_drawn, len(waiting)))
        return [OpId(key % self._tables.n_ops), *drawn]

    def _spread(self, centres: Sequence[OpId], n_reopened: int) -> frozenset[OpId]:
        """Return movable ops around ``centres``, the nearest first."""
        found: dict[OpId, None] = {}
        pending = deque(dict.fromkeys(centres))
        seen = set(pending)
        while pending and len(found) < n_reopened:
            op = pending.popleft()
            if op in self._neighbours:
                found[op] = None
            near = [other for other in self._neighbours.get(op, ()) if other not in seen]
            self._rng.shuffle(near)
            seen.update(near)
            pending.extend(near)
        return frozenset(found)


def _waits(edited: EditedOrder, e: TensorId, key: int) -> bool:
    """Return whether the tensor is in memory at ``key`` though nothing makes or reads it there."""
    events = edited.events[e]
    spot = bisect_left(events, key)
    if spot in (0, len(events)) or events[spot] == key:
        return False
    return not edited.is_make(e, events[spot])


def _find_neighbours(tables: Tables) -> dict[OpId, tuple[OpId, ...]]:
    """Return, per op that may move, those that it reads or that read it."""
    near: dict[OpId, dict[OpId, None]] = {
        OpId(k): {} for k in range(tables.n_ops - 1) if tables.recomputable[k] and tables.makes[k]
    }
    for op, others in near.items():
        for e in tables.reads[op]:
            producer = tables.producers[e]
            if producer in near:
                others[producer] = None
                near[producer][op] = None
    return {op: tuple(others) for op, others in near.items()}
