"""The program of a problem, whole."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from checkmate.milp.frame import Frame
from checkmate.milp.model import Program, Rows
from checkmate.milp.rows import FAMILIES, Family
from checkmate.problem import Problem

MAX_COST = 10**7
"""Costs are exact when their sum is at most this many times their greatest common divisor."""
_BOUND_SLACK, _BOUND_TOLERANCE = 0.01, 1e-9
"""How far a bound may be above the truth: units of the objective, and a part of the bound."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Time in the unit of the objective."""

    unit_ns: int
    """Divides every cost, unless their sum would be above `MAX_COST` of it."""
    is_exact: bool

    def round_bound(self, objective: float) -> int:
        """Return a time that no schedule is below when none is below ``objective``.

        What the solver's tolerances may have added is taken off before rounding up.
        """
        safe = objective - _BOUND_SLACK - _BOUND_TOLERANCE * abs(objective)
        return self.unit_ns * math.ceil(safe) if self.is_exact else math.ceil(self.unit_ns * safe)


def make_clock(problem: Problem) -> Clock:
    """Return the clock in which the costs of ``problem`` are whole, or nearly so."""
    divisor_ns = math.gcd(*problem.costs.time_ns) or 1
    if problem.costs.total_ns <= MAX_COST * divisor_ns:
        return Clock(divisor_ns, is_exact=True)
    return Clock(problem.costs.total_ns // MAX_COST, is_exact=False)


def make_program(
    problem: Problem,
    frame: Frame,
    clock: Clock,
    families: Iterable[Family] = FAMILIES.values(),
    deadline_s: float | None = None,
) -> Program:
    """Return the program with the rows of ``families``: minimise the time in ``clock``.

    Raises `NotFoundError` when it is not written by ``deadline_s`` of the monotonic clock.
    """
    rows = Rows(deadline_s)
    for add_rows in families:
        add_rows(frame, rows)
    columns = frame.columns
    cost = np.zeros(len(columns.lower))
    for (t, i), column in columns.run.items():
        cost[column] = problem.costs.time_ns[i] / clock.unit_ns if i < t else 0.0
    return Program(
        cost=cost,
        offset=problem.costs.total_ns / clock.unit_ns,
        lower=columns.lower,
        upper=columns.upper,
        is_integer=columns.is_integer,
        row_lower=np.full(len(rows.upper), -np.inf),
        row_upper=rows.upper,
        starts=rows.starts,
        indices=rows.indices,
        values=rows.values,
    )
