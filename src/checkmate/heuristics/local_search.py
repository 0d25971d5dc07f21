"""Simulated annealing on the order itself: take recomputes away, then repair what is too large.

A step removes one recompute or a few, which may exceed the budget. Where memory is then the most
above it, a tensor that is in memory there without being read is dropped: it is made again before
its next use, and what its producer reads is retained up to there, or made again too. Of a few
tensors picked at random that one is dropped whose recompute costs least for its size, but for
noise. The step is taken when the order became faster, or, as long as the search is hot, not much
slower.

The search runs in rounds, each from the best order so far, of different heat, and of more steps
where the last ones found nothing. No clock decides anything in here, so that the n-th order that
is yielded depends on the input alone.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from checkmate.graph import OpId
from checkmate.heuristics.editing import EditedOrder, find_keys
from checkmate.heuristics.moves import IdleTensors, Moves
from checkmate.heuristics.tables import Tables

_STEPS_PER_OP, _FEWEST_STEPS, _MOST_STEPS = 10, 100, 2000
"""Steps of a round that follows a success; each round without one adds as many."""
_MOST_ADDED = 3
_CHUNK = 50
"""After so many steps the heat falls, and what excess memory weighs is adapted."""
_HEATS = (0.03, 0.1, 0.3)
"""Of the rounds in turn: a step that costs this share of the mean op's time is taken one time in
e when the round begins."""
_MOST_DROPS = 6
"""Drops by which a step is repaired."""
_MOST_LOSS = 8
"""A repair is given up when it costs this many times the heat."""
_LEAST_WEIGHT, _FIRST_WEIGHT, _MOST_WEIGHT = 1e-4, 2e-2, 1e3
"""What a byte too much at one op weighs, in mean times of an op for a mean tensor."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How to search."""

    patience: int
    """Rounds in a row that find nothing better, after which it ends."""
    seed: int = 0
    keeps_turns: bool = False
    """Whether all that follows stays frontier-advancing if the start is."""


@dataclass(frozen=True, slots=True, order=True)
class Edited:
    """An order, what it exceeds the budget by, and its time; less is better, in this order."""

    excess_nbytes: int
    """Summed over all computes."""
    time_ns: int
    keys: tuple[int, ...]
    """As `EditedOrder` has them."""

    def find_order(self, tables: Tables) -> tuple[OpId, ...]:
        """Return the ops in their order."""
        return tuple(OpId(key % tables.n_ops) for key in self.keys)


def search_locally(
    tables: Tables, budget_nbytes: int, start: Sequence[OpId], manner: Manner
) -> Iterator[Edited]:
    """Yield the best order found so far, again and again, beginning from ``start``.

    ``start``, which may exceed the budget, is taken when it has keys; else the search begins
    without recompute. A graph without ops yields nothing.
    """
    if not tables.n_ops:
        return
    keys = find_keys(tables.n_ops, start)
    if keys is None:
        keys = tuple(op * tables.n_ops + op for op in range(tables.n_ops))
    walk = _Walk(tables, budget_nbytes, keys, manner)
    n_steps = min(max(_STEPS_PER_OP * tables.n_ops, _FEWEST_STEPS), _MOST_STEPS)
    stalled = index = 0
    yield walk.best
    while stalled < manner.patience and not walk.is_best_of_all:
        before = walk.best
        n_added = n_steps * min(stalled, _MOST_ADDED)
        for _ in walk.run_round(_HEATS[index % len(_HEATS)], n_steps + n_added):
            yield walk.best
        stalled = 0 if walk.best < before else stalled + 1
        index += 1


class _Walk:
    """A walk through orders; it keeps the best of them."""

    def __init__(
        self, tables: Tables, budget_nbytes: int, keys: Sequence[int], manner: Manner
    ) -> None:
        self._tables = tables
        self._budget_nbytes = budget_nbytes
        self._keeps_turns = manner.keeps_turns
        self._rng = random.Random(manner.seed)  # noqa: S311 - no secret depends on it
        self._idle = IdleTensors(tables)
        self._mean_ns = sum(tables.time_ns) / max(tables.n_ops, 1)
        mean_nbytes = max(sum(tables.nbytes) / max(len(tables.nbytes), 1), 1.0)
        self._weight_unit = max(self._mean_ns, 1.0) / mean_nbytes
        self._weight = _FIRST_WEIGHT
        self._load(keys)
        self.best = self._describe()

    @property
    def is_best_of_all(self) -> bool:
        """Whether the best order fits and runs every op once."""
        return not self.best.excess_nbytes and self.best.time_ns == sum(self._tables.time_ns)

    def run_round(self, heat: float, n_steps: int) -> Iterator[None]:
        """Walk from the best; yields after each chunk."""
        self._load(self.best.keys)
        for step in range(0, n_steps, _CHUNK):
            if self.is_best_of_all:
                return
            self._heat_ns = heat * self._mean_ns * (1 - step / n_steps) ** 2
            n_fitting = 0
            for _ in range(_CHUNK):
                self._step()
                n_fitting += self._excess_nbytes == 0
            self._adapt(n_fitting / _CHUNK)
            yield

    def _load(self, keys: Sequence[int]) -> None:
        self._edited = EditedOrder(
            self._tables, keys, self._budget_nbytes, keeps_turns=self._keeps_turns
        )
        self._moves = Moves(self._edited, self._idle, self._rng)
        self._excess_nbytes = self._edited.count_excess_nbytes()
        self._heat_ns = 0.0

    def _describe(self) -> Edited:
        edited = self._edited
        return Edited(self._excess_nbytes, edited.time_ns, tuple(edited.keys))

    def _adapt(self, fitting_share: float) -> None:
        """Let excess weigh more where too few orders fit, and less where nearly all do.

        As long as none fits, it weighs ever more, again and again from little on.
        """
        if self.best.excess_nbytes:
            grown = self._weight * 1.3
            self._weight = grown if grown < _MOST_WEIGHT else _FIRST_WEIGHT
            return
        factor = 1.1 if fitting_share < 0.3 else 0.9 if fitting_share > 0.7 else 1.0
        self._weight = min(max(self._weight * factor, _LEAST_WEIGHT), _MOST_WEIGHT)

    def _step(self) -> None:
        """Try one change, and take it or not."""
        edited, before_ns = self._edited, self._edited.time_ns
        edited.mark()
        self._disturb()
        self._repair(before_ns)
        if not edited.is_changed():
            return
        excess_nbytes = edited.count_excess_nbytes()
        weight = self._weight * self._weight_unit
        loss = edited.time_ns - before_ns + weight * (excess_nbytes - self._excess_nbytes)
        if not self._is_taken(loss):
            edited.undo()
            return
        self._excess_nbytes = excess_nbytes
        if (excess_nbytes, edited.time_ns) < (self.best.excess_nbytes, self.best.time_ns):
            self.best = self._describe()

    def _is_taken(self, loss: float) -> bool:
        if loss <= 0:
            return True
        return self._heat_ns > 0 and self._rng.random() < math.exp(-loss / self._heat_ns)

    def _disturb(self) -> None:
        """Remove one recompute, or two, or drop a tensor anywhere."""
        edited, kind = self._edited, self._rng.random()
        if kind < 0.85 and edited.late:
            self._moves.remove(self._rng.choice(edited.late))
            if kind > 0.6 and edited.late:
                self._moves.remove(self._rng.choice(edited.late))
        else:
            self._moves.drop_at(self._rng.choice(edited.keys))

    def _repair(self, before_ns: int) -> None:
        """Drop tensors where memory exceeds the budget the most."""
        most_ns = before_ns + _MOST_LOSS * self._heat_ns
        for _ in range(_MOST_DROPS):
            key, excess_nbytes = self._edited.find_worst()
            if excess_nbytes <= 0 or self._edited.time_ns > most_ns:
                return
            self._moves.drop_at(key)
