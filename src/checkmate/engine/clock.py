"""One time limit for searches that follow each other."""

from __future__ import annotations

import time
from dataclasses import replace

from checkmate.search.finding import Limits

_GRACE_S = 1.0
"""What is begun within this time of the end is quick: most searches have something at once."""


class Clock:
    """Runs from when it is made."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._started_s = time.monotonic()

    def take(self, share: float = 1.0) -> Limits:
        """Return the limits of a search that may take ``share`` of the time that is left."""
        if self._limits.time_s is None:
            return self._limits
        left_s = self._started_s + self._limits.time_s - time.monotonic()
        return replace(self._limits, time_s=max(0.0, left_s) * share)

    @property
    def is_over(self) -> bool:
        """Whether nothing more should begin; without a limit that is never so."""
        if self._limits.time_s is None:
            return False
        return time.monotonic() > self._started_s + self._limits.time_s + _GRACE_S
