"""How far a search is, for whoever watches it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Progress:
    """What a search has in hand."""

    phase: str
    """What it does at the moment."""
    time_ns: int | None
    """Of the best schedule so far; None: there is none."""
    bound_ns: int
    """The best that is proved so far, in the narrowest space."""
    ideal_ns: int
    """The time of every op once."""


class Listener(Protocol):
    """Someone who watches a search; called from the thread that searches."""

    def tell(self, progress: Progress) -> None:
        """Take note of where the search is."""

    def warn(self, text: str) -> None:
        """Take note of a part of the search that failed."""


class Silence:
    """A listener whom nothing interests."""

    def tell(self, progress: Progress) -> None:
        """Do nothing."""

    def warn(self, text: str) -> None:
        """Do nothing."""


SILENCE: Listener = Silence()
