"""What a search does with the time that is left: local search and small programs in turn.

Local search goes far, with another seed each round, from the best order and from one of its own,
which begins as what the greedy found; the programs find all that is near.
"""

from __future__ import annotations

from collections.abc import Sequence

from checkmate.graph import OpId
from checkmate.search.local import Effort, anneal
from checkmate.search.reopened import Reopening
from checkmate.search.standing import Standing

_PROGRAMS = 10
"""Programs of a round."""
_CHUNKS = 400
"""Chunks of local search of a round."""
_PATIENCE = 6
"""Rounds without success after which it ends, at least."""


def improve_in_rounds(standing: Standing) -> None:
    """Offer ever better orders until the best is good enough, or hope is gone.

    Ends when the last success was as long ago as all that came before it, counted in rounds, so
    that the result does not depend on a clock unless it runs out.
    """
    reopening = Reopening(standing)
    other: Sequence[OpId] | None = standing.draft
    n_rounds = n_fruitful = 0
    while n_rounds - n_fruitful < max(_PATIENCE, n_fruitful):
        before = standing.best
        n_rounds += 1
        effort = Effort(_CHUNKS, _CHUNKS, n_rounds)
        if other is None or n_rounds % 2:
            anneal(standing, effort)
        else:
            other = anneal(standing, effort, other)
        reopening.improve(_PROGRAMS)
        if standing.is_ended or standing.is_out_of_time:
            return
        if standing.best is not before:
            n_fruitful = n_rounds
