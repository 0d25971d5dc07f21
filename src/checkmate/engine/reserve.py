"""A plan that leaves room for what its written form adds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from checkmate.arena import is_within
from checkmate.engine.clock import Clock
from checkmate.engine.solve import Hints, solve
from checkmate.errors import InfeasibleError, InterruptError, NotFoundError
from checkmate.placement import CHUNK_NBYTES
from checkmate.plan import Claim, Plan, certify
from checkmate.problem import Problem
from checkmate.schedule import Schedule
from checkmate.search.finding import Limits
from checkmate.units import format_nbytes_exactly

N_ATTEMPTS = 4
"""Further searches, each with less of the budget."""
_FIRST_SHARE = 0.75
"""Of the time, for the first search; each further one may take half of what is left."""

FindNeed = Callable[[Schedule], int]
"""The smallest budget in which a schedule runs as it is written."""


class NoRoomError(NotFoundError):
    """Schedules that fit were found, but none that leaves room for what its file adds."""

    def __init__(self, message: str, *, hint: str, plan: Plan) -> None:
        super().__init__(message, hint=hint)
        self.plan = plan
        """The best that fits without."""


def solve_with_room(
    problem: Problem, budget_nbytes: int, strategy: str, limits: Limits, find_need: FindNeed
) -> Plan:
    """Return the plan of `solve` that stays within the budget as it is written.

    Where the first plan does not, the next searches get less by what was too much. The bound of
    the first, which had all of the budget, holds for all. Raises `NoRoomError` when none does, and
    what `solve` raises.
    """

    def accepts(schedule: Schedule) -> bool:
        return find_need(schedule) <= budget_nbytes

    clock = Clock(limits)
    hints = Hints(accepts=accepts)
    plan = first = solve(problem, budget_nbytes, strategy, clock.take(_FIRST_SHARE), hints)
    search_nbytes = budget_nbytes
    for _ in range(N_ATTEMPTS):
        excess_nbytes = _find_excess(problem, plan, budget_nbytes, find_need)
        if excess_nbytes == 0:
            claim = _take_bound(plan, first.claim, limits)
            return certify(problem, plan.schedule, budget_nbytes, claim)
        # Where bytes alone count, all that is above the peak is room already.
        if plan.claim.termination == "interrupted" or clock.is_over:
            break
        had_nbytes = plan.peak.nbytes if problem.arena is None else search_nbytes
        search_nbytes = had_nbytes - excess_nbytes
        try:
            plan = solve(problem, search_nbytes, strategy, clock.take(0.5))
        except (InfeasibleError, NotFoundError, InterruptError):
            break
    needed_nbytes = find_need(first.schedule)
    raise NoRoomError(
        "no schedule was found that leaves room for its fences in"
        f" {format_nbytes_exactly(budget_nbytes)}",
        hint="with them, the smallest budget known to work is"
        f" {format_nbytes_exactly(needed_nbytes)}; or use --fences none",
        plan=first,
    )


def _find_excess(problem: Problem, plan: Plan, budget_nbytes: int, find_need: FindNeed) -> int:
    """Return by how many bytes less the next search has to fit; 0: this plan fits."""
    needed_nbytes = find_need(plan.schedule)
    if needed_nbytes > budget_nbytes:
        return needed_nbytes - budget_nbytes
    # An arena may fit in less and not in more: other chunks are free then.
    return 0 if is_within(problem, plan.schedule, budget_nbytes) else CHUNK_NBYTES


def _take_bound(plan: Plan, first: Claim, limits: Limits) -> Claim:
    """Return what is proved of ``plan`` with all of the budget."""
    if plan.claim == first:
        return first
    bound_ns = min(first.bound_ns, plan.time_ns)
    claim = replace(first, strategy=plan.claim.strategy, bound_ns=bound_ns)
    if plan.time_ns == bound_ns:
        return replace(claim, termination="optimal")
    is_close = plan.time_ns <= bound_ns * (1 + limits.gap)
    return replace(claim, termination="gap" if is_close else "limit")
