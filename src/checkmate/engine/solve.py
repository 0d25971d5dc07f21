"""From a problem and a budget to a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from checkmate.arena import count_budget_nbytes
from checkmate.engine.fit import Accepts, Goal, fit
from checkmate.engine.min_budget import quote_min_budget
from checkmate.engine.tighten import Draft, Find, halve_time
from checkmate.errors import CheckmateError, InfeasibleError, NotFoundError, UnsuitableError
from checkmate.folding import Folding, fold_views
from checkmate.graph import OpId
from checkmate.liveness import insert_frees, remove_unread
from checkmate.plan import Claim, Plan, certify
from checkmate.problem import Problem
from checkmate.search.finding import Finding, Limits
from checkmate.search.strategies import STRATEGIES, Strategy, begin_from
from checkmate.simulate import Simulation, simulate
from checkmate.units import format_nbytes_exactly


@dataclass(frozen=True, slots=True)
class Hints:
    """What helps a search."""

    start: tuple[OpId, ...] = ()
    """An order of the problem without its views; where it fits, no plan is slower."""
    accepts: Accepts | None = None
    """Knows what writing a schedule adds; one that it refuses is passed over wherever another is
    found for the arena."""


def run_baseline(problem: Problem) -> Simulation:
    """Return what the graph does without recompute, each tensor freed after its last use."""
    order = [OpId(i) for i in range(len(problem.graph.ops))]
    return simulate(problem, insert_frees(problem.graph, order))


def count_baseline_fragmentation_nbytes(problem: Problem) -> int:
    """Return what the arena adds to the peak of the graph without recompute."""
    order = [OpId(i) for i in range(len(problem.graph.ops))]
    schedule = insert_frees(problem.graph, order)
    peak_nbytes = simulate(problem, schedule).peak.nbytes
    return max(0, count_budget_nbytes(problem, schedule) - peak_nbytes)


def solve(
    problem: Problem,
    budget_nbytes: int,
    strategy: str,
    limits: Limits,
    hints: Hints | None = None,
) -> Plan:
    """Return the certified plan of ``strategy``, a name of `STRATEGIES`, within the budget.

    In its arena, when ``problem`` has one. Raises `InfeasibleError` when it is proved that nothing
    fits, `NotFoundError` when nothing was found; both say the smallest budget that is known to
    work.
    """
    hints = hints or Hints()
    folding = fold_views(problem)
    find = _make_find(folding, strategy, hints.start)
    try:
        draft = find(budget_nbytes, _share_time(problem, limits))
    except UnsuitableError:
        raise
    except (InfeasibleError, NotFoundError) as error:
        raise _add_smallest_budget(error, problem, budget_nbytes, limits) from error
    return _certify_draft(
        folding, Goal(budget_nbytes, hints.accepts, hints.start), limits, draft, find
    )


def find_plan(problem: Problem, budget_nbytes: int, strategy: str, limits: Limits) -> Plan:
    """Return what `solve` does; errors say nothing of other budgets, which takes time to know."""
    folding = fold_views(problem)
    find = _make_find(folding, strategy)
    draft = find(budget_nbytes, _share_time(problem, limits))
    return _certify_draft(folding, Goal(budget_nbytes), limits, draft, find)


def _make_find(folding: Folding, strategy: str, start: Sequence[OpId] = ()) -> Find:
    """Return the search for drafts of a problem, which sees it without views."""
    search = begin_from(start, strategy) if start else STRATEGIES[strategy]

    def find(live_nbytes: int, limits: Limits) -> Draft:
        try:
            return _make_draft(folding, search(folding.folded, live_nbytes, limits))
        except (InfeasibleError, NotFoundError) as error:
            if isinstance(error, UnsuitableError) or not folding.spare_nbytes:
                raise
            return _find_tighter(folding, search, live_nbytes, limits, error)

    return find


def _find_tighter(
    folding: Folding, search: Strategy, live_nbytes: int, limits: Limits, error: CheckmateError
) -> Draft:
    """Return what fits only as it holds no computed shape longer than its view needs it.

    Raises ``error``, of the folded problem, when it is proved of the one with its views too.
    """
    draft = None
    try:
        more_nbytes = live_nbytes + folding.spare_nbytes
        draft = _make_draft(folding, search(folding.folded, more_nbytes, limits))
    except InfeasibleError:
        raise error from None
    except NotFoundError:
        pass  # what was found before this says no more
    if draft is None or simulate(folding.original, draft.schedule).peak.nbytes > live_nbytes:
        budget = format_nbytes_exactly(live_nbytes)
        raise NotFoundError(f"no schedule found that fits in {budget}", hint="raise --budget")
    return draft


def _make_draft(folding: Folding, finding: Finding) -> Draft:
    """Return what ``finding``, of the folded problem, is with its views."""
    problem = folding.original
    order = remove_unread(folding.folded.graph, finding.order)
    schedule = insert_frees(problem.graph, folding.unfold(order))
    time_ns = simulate(problem, schedule).time_ns
    return Draft(schedule, time_ns, _raise_bound(finding.claim, folding.view_ns, time_ns))


def _share_time(problem: Problem, limits: Limits) -> Limits:
    """Return the limits of the first search: the arena takes half of the time."""
    return limits if problem.arena is None else halve_time(limits)


def _certify_draft(folding: Folding, goal: Goal, limits: Limits, draft: Draft, find: Find) -> Plan:
    """Return the plan that ``draft`` is, or another one of which the arena fits."""
    problem = folding.original
    if problem.arena is not None and not goal.is_met(problem, draft.schedule):
        draft = fit(folding, goal, halve_time(limits), draft, find)
    budget_nbytes = goal.budget_nbytes
    return certify(problem, draft.schedule, budget_nbytes, draft.claim)


def _raise_bound(claim: Claim, view_ns: int, time_ns: int) -> Claim:
    """Return ``claim`` with the time of the views in its bound.

    Leaving out what is unread may put a schedule outside the space of the bound and ahead of it;
    then nothing in that space is faster, which is the claim.
    """
    bound_ns = claim.bound_ns + view_ns
    if time_ns <= bound_ns:
        return replace(claim, bound_ns=time_ns, termination="optimal")
    return replace(claim, bound_ns=bound_ns)


def _add_smallest_budget(
    error: CheckmateError, problem: Problem, budget_nbytes: int, limits: Limits
) -> CheckmateError:
    """Return ``error`` with what is known of the smallest budget."""
    smallest = quote_min_budget(problem, limits)
    known = smallest.describe(problem)
    if smallest.nbytes <= budget_nbytes:
        known += "; try --strategy auto"
    return type(error)(error.message, hint=f"{known}{'; ' + error.hint if error.hint else ''}")
