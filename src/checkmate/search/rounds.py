"""What a search does with the time that is left: local search and small programs in turn.

Local search goes far, with another seed each round, from the best order and from one of its own,
which begins as what the greedy found; the programs find all that is near.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from checkmate.errors import NotFoundError
from checkmate.graph import OpId
from checkmate.search.local import Effort, anneal
from checkmate.search.reopened import Reopening
from checkmate.search.standing import Standing

_PROGRAMS = 10
"""Programs of a round."""
_LEAST_CHUNKS, _MOST_CHUNKS = 10, 400
"""Chunks of local search of a round: as many as there are ops, within these limits. Shorter rounds
found less: U-Net at 24 % of its peak stayed at 33.2 % with 150 chunks, came to 31.2 with 400."""
_PATIENCE = 4
"""Rounds without success after which it ends, at least."""
_POLISHING = 0.25
"""Polishing may take this share of the time that the search took before."""
_LEAST_POLISHING_S = 5.0
"""When that is less, there is none: a quick search ends quickly."""


def improve_in_rounds(standing: Standing) -> None:
    """Offer ever better orders until the best is good enough, or hope is gone.

    Ends when the last success was as long ago as all that came before it, counted in rounds, so
    that the result does not depend on a clock unless it runs out. Does nothing when no order is
    known.
    """
    if standing.best is None:
        return
    rounds = _Rounds(standing, lambda: standing.is_ended or standing.is_out_of_time)
    n_rounds = n_fruitful = 0
    while n_rounds - n_fruitful < max(_PATIENCE, n_fruitful):
        before = standing.best
        n_rounds += 1
        rounds.run(n_rounds)
        if rounds.is_over():
            return
        if standing.best is not before:
            n_fruitful = n_rounds


def polish_in_rounds(standing: Standing) -> None:
    """Offer better orders for a share of the time that the search took; not without a clock."""
    began_s = standing.elapsed_s
    if standing.limits.time_s is None or _POLISHING * began_s < _LEAST_POLISHING_S:
        return
    ends_s = (1 + _POLISHING) * began_s
    rounds = _Rounds(standing, lambda: standing.is_out_of_time or standing.elapsed_s > ends_s)
    n_rounds = 0
    while not rounds.is_over():
        n_rounds += 1
        rounds.run(n_rounds)


class _Rounds:
    """Rounds of one search."""

    def __init__(self, standing: Standing, is_over: Callable[[], bool]) -> None:
        self._standing = standing
        self._reopening = Reopening(standing, is_over)
        self._is_over = is_over
        self._other: Sequence[OpId] | None = standing.draft
        """Where the local search is that does not begin from the best order."""

    def is_over(self) -> bool:
        """Return whether there is no time, or nothing left to do."""
        return self._is_over() or self._reopening.is_exhausted

    def run(self, seed: int) -> None:
        """Run the round that has ``seed``, as long as it is not over."""
        self._reopening.improve(1)  # of a small graph it has all there is
        if self.is_over():
            return
        # Where the best order cannot be edited, local search may find nothing that fits.
        with suppress(NotFoundError):
            self._anneal(seed)
        self._reopening.improve(_PROGRAMS - 1)

    def _anneal(self, seed: int) -> None:
        n_ops = len(self._standing.problem.graph.ops)
        n_chunks = min(max(n_ops, _LEAST_CHUNKS), _MOST_CHUNKS)
        effort = Effort(n_chunks, n_chunks, seed, ends_when_good=not self._standing.is_good)
        if self._other is None or seed % 2:
            anneal(self._standing, effort)
        else:
            self._other = anneal(self._standing, effort, self._other)
