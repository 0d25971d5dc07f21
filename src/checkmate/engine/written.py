"""A plan that fits in its budget as it is written: with fences or, where these may go, without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from checkmate.arena import count_budget_nbytes, is_within
from checkmate.engine.clock import Clock
from checkmate.engine.ordering import restore_plan
from checkmate.engine.reserve import FindNeed, NoRoomError, solve_with_room
from checkmate.engine.solve import Hints, run_baseline, solve
from checkmate.errors import NotFoundError
from checkmate.folding import fold_views
from checkmate.graph import OpId
from checkmate.heuristics.keep_all import order_all
from checkmate.liveness import insert_frees
from checkmate.placement import CHUNK_NBYTES
from checkmate.plan import Plan, certify
from checkmate.problem import Problem
from checkmate.reordering import Reordering
from checkmate.schedule import Schedule
from checkmate.search.finding import Limits
from checkmate.simulate import simulate
from checkmate.units import format_nbytes_exactly

_BARE_SHARE = 0.75
"""Of the time, for a search without fences; the rest makes room for what the file adds."""

Say = Callable[[str], object]
"""Is told, in a line for people, what became of the fences."""

Expand = Callable[[Schedule], tuple[Problem, Schedule]]
"""Makes of a schedule of the graph that was given the problem that its file is, and its run."""


@dataclass(frozen=True, slots=True)
class Search:
    """What to search for, and how long."""

    budget_nbytes: int
    strategy: str
    limits: Limits
    start: tuple[OpId, ...] = ()
    """An order, without views, than which no plan is to be slower."""


@dataclass(frozen=True, slots=True)
class Form:
    """A way to write schedules down."""

    reordering: Reordering
    """Its problems are as the machine is for what is written in this way."""
    expand: Expand | None = None
    """None: nothing is written, so that a schedule needs what it needs."""
    spare_nbytes: int = 0
    """What a run may take beyond what is expanded."""

    def count_nbytes(self, order: Sequence[OpId], nbytes: int) -> int:
        """Return the budget that ``order``, without views, needs as it is written.

        At least ``nbytes``, the budget in which it is tried first.
        """
        problem = self.reordering.reordered
        schedule = fold_views(problem).lay_out(order)
        return self._count_nbytes(schedule, nbytes)

    def count_kept_nbytes(self, nbytes: int) -> int:
        """Return the budget that the graph needs without recompute; ``nbytes`` as above."""
        problem = self.reordering.reordered
        return self._count_nbytes(insert_frees(problem.graph, order_all(problem)), nbytes)

    def make_find_need(self, budget_nbytes: int) -> FindNeed:
        """Return what tells the smallest budget in which a schedule runs as it is written.

        ``budget_nbytes`` is what it had better fit in.
        """
        expand = self.expand
        assert expand is not None

        # A plan is looked at when it is found and again when it is chosen.
        @lru_cache(maxsize=4)
        def find_need(schedule: Schedule) -> int:
            expanded, run = expand(self.reordering.restore(schedule))
            peak_nbytes = simulate(expanded, run).peak.nbytes + self.spare_nbytes
            if expanded.arena is None or is_within(expanded, run, budget_nbytes):
                return peak_nbytes
            return max(
                peak_nbytes, count_budget_nbytes(expanded, run), budget_nbytes + CHUNK_NBYTES
            )

        return find_need

    def _count_nbytes(self, schedule: Schedule, nbytes: int) -> int:
        return nbytes if self.expand is None else max(nbytes, self.make_find_need(nbytes)(schedule))


@dataclass(frozen=True, slots=True)
class Forms:
    """The ways in which a schedule may be written."""

    bare: Form
    fenced: Form | None = None
    """None: without fences alone."""
    may_go: bool = False
    """Where there is no room for fences, there need be none."""


def solve_written(forms: Forms, search: Search, say: Say) -> tuple[Plan, bool]:
    """Return a plan that stays within its budget as it is written, and whether with fences.

    Where fences find no room and may go, there are none, with a notice.
    """
    fenced, clock = forms.fenced, Clock(search.limits)
    if fenced is None or _asks_nothing(forms, search, say):
        return restore_plan(
            forms.bare.reordering, _solve_bare(forms.bare, search, None, say)
        ), False
    plan, held = _leave_room(fenced, search, say, may_go=forms.may_go)
    if held:
        return restore_plan(fenced.reordering, plan), True
    rest = replace(search, limits=clock.take())
    return restore_plan(forms.bare.reordering, _solve_bare(forms.bare, rest, plan, say)), False


def _asks_nothing(forms: Forms, search: Search, say: Say) -> bool:
    """Return whether nothing has to be recomputed but to make room for fences that may go.

    Says so where it is.
    """
    if not forms.may_go or forms.fenced is None or search.start:
        return False
    budget_nbytes = search.budget_nbytes
    if run_baseline(forms.bare.reordering.reordered).peak.nbytes > budget_nbytes:
        return False
    needs = [form.count_kept_nbytes(budget_nbytes) for form in (forms.bare, forms.fenced)]
    if not needs[0] <= budget_nbytes < needs[1]:
        return False
    say(
        "no fences: the graph fits in the budget as it is, and with them it needs"
        f" {format_nbytes_exactly(needs[1])}; run with the options that the schedule names"
    )
    return True


def _solve_bare(form: Form, search: Search, found: Plan | None, say: Say) -> Plan:
    """Return a plan that stays within its budget without fences; ``found`` where it does.

    Without them too a file is more than its schedule: what nobody reads gets a reader.
    """
    problem, clock = form.reordering.reordered, Clock(search.limits)
    how = (search.budget_nbytes, search.strategy)
    if found is None:
        limits = clock.take(1.0 if form.expand is None else _BARE_SHARE)
        found = solve(problem, *how, limits, Hints(search.start))
    if form.expand is None:
        return found
    find_need = form.make_find_need(search.budget_nbytes)
    if find_need(found.schedule) <= search.budget_nbytes:
        return found
    try:
        return solve_with_room(problem, *how, clock.take(), find_need)
    except NoRoomError as error:
        needed_nbytes = find_need(error.plan.schedule)
        if problem.arena is None:
            say(
                "no schedule was found that leaves room for what its file adds: the written model"
                f" needs {format_nbytes_exactly(find_need(found.schedule))}"
            )
            return found
        raise NotFoundError(
            "no schedule was found whose file runs in an arena within"
            f" {format_nbytes_exactly(search.budget_nbytes)}",
            hint=f"the smallest budget known to work is {format_nbytes_exactly(needed_nbytes)}",
        ) from error


def _leave_room(form: Form, search: Search, say: Say, *, may_go: bool) -> tuple[Plan, bool]:
    """Return a plan, and whether there is room for its fences, which ``may_go``."""
    problem, find_need = form.reordering.reordered, form.make_find_need(search.budget_nbytes)
    how = (search.budget_nbytes, search.strategy, search.limits)
    try:
        if not search.start or not may_go:
            return solve_with_room(problem, *how, find_need), True
        plan = solve(problem, *how, Hints(search.start))
        for fitting in (plan, _take_start(problem, search, plan)):
            if fitting is not None and find_need(fitting.schedule) <= search.budget_nbytes:
                return fitting, True
        reason = "the smallest budget leaves no room for them"
    except NoRoomError as error:
        if not may_go:
            raise
        plan, reason = error.plan, error.message
    say(f"no fences: {reason}; run with the options that the schedule names")
    return plan, False


def _take_start(problem: Problem, search: Search, plan: Plan) -> Plan | None:
    """Return the plan that the search began from, with what is proved of ``plan``."""
    schedule = fold_views(problem).lay_out(search.start)
    if not is_within(problem, schedule, search.budget_nbytes):
        return None
    # It may be ahead of the space of the bound, and then of the plan too.
    bound_ns = min(plan.claim.bound_ns, simulate(problem, schedule).time_ns)
    claim = replace(plan.claim, strategy="start", bound_ns=bound_ns, termination="limit")
    return certify(problem, schedule, search.budget_nbytes, claim)
