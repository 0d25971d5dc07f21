"""The programs that the search for chains of stages goes through."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Aim = Literal["schedule", "bound", "both"]


@dataclass(frozen=True, slots=True)
class Step:
    """One program of the search."""

    aim: Aim
    """A schedule: without deep recomputes, and of the others those of ops that its relaxation, or
    one before, recomputes at all. A bound: it has every schedule of the class. Both: so it has,
    with all windows from the start; for small problems, of which it is the last."""
    depth: int | None


FIRST_DEPTH = 4
STEPS = (
    Step("schedule", FIRST_DEPTH),
    Step("bound", FIRST_DEPTH),
    Step("both", None),
    Step("schedule", 6),
    Step("schedule", 8),
    Step("bound", 16),
    Step("schedule", 12),
    Step("bound", None),
)
"""In turn, until the gap is reached."""
MOST_NEAR = 60_000
"""Programs with more near recomputes take too long to be worth it."""
MOST_WHOLE = 200_000
"""Near recomputes times tensors up to which a problem is small."""
MOST_NODES = 200
"""Branch-and-bound nodes of each program but the last; it has a quarter of the time left, too."""
