"""The programs that the search for chains of stages goes through."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """One program of the search."""

    depth: int | None
    is_bound: bool
    """True: it has every schedule of the class, for a bound; False: it leads to schedules."""
    is_whole: bool = False
    """It has all windows from the start, and the search ends with it; for small programs."""


FIRST_DEPTH = 4
STEPS = (
    Step(FIRST_DEPTH, is_bound=False),
    Step(FIRST_DEPTH, is_bound=True),
    Step(None, is_bound=True, is_whole=True),
    Step(6, is_bound=False),
    Step(16, is_bound=True),
    Step(8, is_bound=False),
    Step(None, is_bound=True),
)
"""In turn, until the gap is reached."""
MOST_NEAR = 60_000
"""Programs with more near recomputes take too long to be worth it."""
MOST_WHOLE = 200_000
"""Near recomputes times tensors up to which a program is solved whole."""
MOST_NODES = 200
"""Branch-and-bound nodes of each program but the last; it has a quarter of the time left, too."""
