"""The smallest budget in whose arena something fits.

What takes the fewest bytes may lie badly in the arena; another order, of more bytes, with less
between its chunks. So room is made in smaller and smaller arenas until none is found.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from checkmate.arena import count_budget_nbytes, is_within
from checkmate.folding import Folding
from checkmate.graph import OpId
from checkmate.heuristics.packing import PackingLimits, pack
from checkmate.search.finding import Limits
from checkmate.simulate import simulate

Order = tuple[OpId, ...]

CountWritten = Callable[[Order, int], int]
"""The budget that an order without views needs as it is written; at least, and best, the second."""

_FINENESS = 256
"""Budgets closer than one of so many parts are one."""
_MOST_S = 30.0
"""How long this may take."""
_MAX_STEPS = 3
"""Budgets tried without a clock."""
_SHARE = 0.5
"""Of the time that is left, for one budget."""
_ANY_NS = 1 << 62
"""As fast as this is every order."""


def count_as_is(_: Order, nbytes: int) -> int:
    """Return ``nbytes``: nothing is added by writing an order."""
    return nbytes


@dataclass(frozen=True, slots=True)
class Packed:
    """An order without views that fits in the arena of a budget."""

    order: Order
    nbytes: int


def pack_smallest(
    folding: Folding, order: Order, limits: Limits, count_written: CountWritten
) -> Packed:
    """Return what fits in the smallest budget found; at first ``order``.

    A Ctrl-C ends the search with the best so far.
    """
    deadline_s = math.inf
    if limits.time_s is not None:
        deadline_s = time.monotonic() + min(_MOST_S, limits.time_s)
    schedule = folding.lay_out(order)
    least_nbytes = simulate(folding.original, schedule).peak.nbytes
    known_nbytes = max(least_nbytes, count_budget_nbytes(folding.original, schedule))
    best = Packed(order, count_written(order, known_nbytes))
    n_left = _MAX_STEPS if limits.time_s is None else math.inf
    while n_left > 0 and best.nbytes - least_nbytes > best.nbytes // _FINENESS:
        n_left -= 1
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            break
        nbytes = (least_nbytes + best.nbytes) // 2
        try:
            found = _pack(folding, nbytes, order, left_s * _SHARE, count_written)
        except KeyboardInterrupt:
            break
        if found is None:
            least_nbytes = nbytes
        else:
            best = Packed(found, nbytes)
    return best


def _pack(
    folding: Folding, nbytes: int, start: Order, time_s: float, count_written: CountWritten
) -> Order | None:
    """Return the first order found that fits in the arena of ``nbytes``."""

    def accepts(order: Order) -> bool:
        is_small = is_within(folding.original, folding.lay_out(order), nbytes)
        return is_small and count_written(order, nbytes) <= nbytes

    deadline_s = time.monotonic() + time_s if math.isfinite(time_s) else None
    until = PackingLimits(good_ns=_ANY_NS, deadline_s=deadline_s)
    return pack(folding.folded, nbytes, (start,), until, accepts)
