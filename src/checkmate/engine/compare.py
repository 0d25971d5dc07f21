"""Strategies side by side: one problem, one budget, one judge."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from checkmate.engine.solve import find_plan
from checkmate.errors import (
    CheckmateError,
    InfeasibleError,
    InterruptError,
    NoneInSpaceError,
    NotFoundError,
    RunError,
    UnsuitableError,
)
from checkmate.folding import fold_views
from checkmate.plan import Plan, Space
from checkmate.problem import Problem
from checkmate.search.exact import SPACE, find_lp_bound
from checkmate.search.finding import Limits

LP_BOUND = "lp-bound"
"""The row of the bound that the relaxation of the paper's program gives; it has no plan."""

Verdict = Literal[
    "found", "bound", "not found", "none in space", "infeasible", "unsuitable", "failed",
    "interrupted",
]  # fmt: skip
"""A certified plan; a bound alone; nothing found and nothing proved; proved that nothing in the
space of the strategy fits; proved that nothing fits; not for such a graph; the solver failed; the
user ended it."""

_VERDICTS: Sequence[tuple[type[CheckmateError], Verdict]] = (
    (UnsuitableError, "unsuitable"),
    (NoneInSpaceError, "none in space"),
    (NotFoundError, "not found"),
    (InfeasibleError, "infeasible"),
    (InterruptError, "interrupted"),
    (RunError, "failed"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """What one strategy came to."""

    strategy: str
    verdict: Verdict
    plan: Plan | None = None
    """None: the verdict is another than "found"."""
    bound_ns: int | None = None
    space: Space | None = None
    """Among which schedules the bound holds; None: there is no bound."""
    error: CheckmateError | None = None
    """Why there is neither a plan nor a bound."""
    seconds: float = 0.0


def compare(
    problem: Problem, budget_nbytes: int, strategies: Sequence[str], limits: Limits
) -> Iterator[Row]:
    """Yield a row per strategy, each with the limits to itself, and that of the LP bound last.

    Every plan is certified. A Ctrl-C ends the strategy that runs and the comparison.
    """
    for strategy in (*strategies, LP_BOUND):
        row = _make_row(problem, budget_nbytes, strategy, limits)
        yield row
        if row.verdict == "interrupted":
            return


def find_failure(rows: Sequence[Row]) -> CheckmateError | None:
    """Return what a comparison fails with: the strongest claim; None when a plan was found.

    A proof for all schedules is stronger than an interrupt, that than a failed solver, and that
    than not to have found anything.
    """
    if any(row.plan is not None for row in rows):
        return None
    errors = [row.error for row in rows if row.error is not None]
    for kind in (InfeasibleError, InterruptError, RunError, NotFoundError):
        for error in errors:
            if isinstance(error, kind) and not isinstance(error, UnsuitableError):
                return error
    return next(iter(errors), None)


def _make_row(problem: Problem, budget_nbytes: int, strategy: str, limits: Limits) -> Row:
    began_s = time.monotonic()
    find = _find_bound if strategy == LP_BOUND else _find_plan
    try:
        row = find(problem, budget_nbytes, strategy, limits)
    except CheckmateError as error:
        row = Row(strategy, _judge(error), error=error)
    except KeyboardInterrupt:
        row = Row(strategy, "interrupted", error=InterruptError("interrupted"))
    return replace(row, seconds=time.monotonic() - began_s)


def _judge(error: CheckmateError) -> Verdict:
    """Return the verdict that ``error`` is; raise it when it is none, but a bug of ours."""
    for kind, verdict in _VERDICTS:
        if isinstance(error, kind):
            return verdict
    raise error


def _find_plan(problem: Problem, budget_nbytes: int, strategy: str, limits: Limits) -> Row:
    plan = find_plan(problem, budget_nbytes, strategy, limits)
    return Row(strategy, "found", plan, plan.claim.bound_ns, plan.claim.space)


def _find_bound(problem: Problem, budget_nbytes: int, strategy: str, limits: Limits) -> Row:
    folding = fold_views(problem)
    bound_ns = find_lp_bound(folding.folded, budget_nbytes, limits) + folding.view_ns
    return Row(strategy, "bound", None, bound_ns, SPACE)
