"""What the solver is asked and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from checkmate.milp.model import FloatArray

THREADS = 1
SEED = 0

Status = Literal["solved", "infeasible", "limit", "interrupted"]
"""Solved to the gap that was asked for; proved to have no solution, twice; a limit was reached;
it was asked to stop."""


@dataclass(frozen=True, slots=True)
class Settings:
    """When a solve stops."""

    gap: float = 0.0
    """Good enough: (objective - bound) / objective."""
    time_s: float | None = None
    nodes: int | None = None
    target: float | None = None
    """A bound that is good enough: nothing is gained by proving more."""


@dataclass(frozen=True, slots=True)
class MilpResult:
    """The solver's claim; a search believes the values only as far as it can check them."""

    status: Status
    values: FloatArray | None
    """Per column; None: no solution is known."""
    objective: float
    """Of ``values``; infinite without them."""
    bound: float
    """No solution is below, also where a limit ended the solve; minus infinity when nothing is
    known, plus infinity when there is none at all."""
    nodes: int
    version: str
    """Of HiGHS."""
