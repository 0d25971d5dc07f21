"""What a search is given and what it returns."""

from __future__ import annotations

from dataclasses import dataclass, field

from checkmate.graph import OpId
from checkmate.plan import Claim
from checkmate.search.progress import SILENCE, Listener


@dataclass(frozen=True, slots=True)
class Limits:
    """When a search stops, beside having an optimum, and who watches it."""

    gap: float = 0.01
    """Good enough: (time - bound) / bound."""
    time_s: float | None = None
    """Seconds of wall-clock time; None: no clock, so the result is reproducible."""
    nodes: int | None = None
    """Branch-and-bound nodes; None: no limit."""
    listener: Listener = field(default=SILENCE, compare=False, repr=False)
    """Told how the search goes; it has no say in it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """An order of computes that fits the budget, and what is claimed of it."""

    order: tuple[OpId, ...]
    claim: Claim
