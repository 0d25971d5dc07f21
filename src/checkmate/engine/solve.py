"""From a problem and a budget to a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from checkmate.arena import count_budget_nbytes
from checkmate.engine.draft import find_with_shapes, make_draft
from checkmate.engine.fit import fit
from checkmate.engine.min_budget import quote_min_budget
from checkmate.engine.tighten import Accepts, Draft, Find, Goal, halve_time
from checkmate.errors import CheckmateError, InfeasibleError, NotFoundError, UnsuitableError
from checkmate.folding import Folding, fold_views
from checkmate.graph import OpId
from checkmate.liveness import insert_frees
from checkmate.plan import Plan, certify
from checkmate.problem import Problem
from checkmate.search.finding import Limits
from checkmate.search.strategies import STRATEGIES, begin_from
from checkmate.simulate import Simulation, simulate


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
        if folding.spare_nbytes:
            return find_with_shapes(folding, search, live_nbytes, limits)
        return make_draft(folding, search(folding.folded, live_nbytes, limits))

    return find


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


def _add_smallest_budget(
    error: CheckmateError, problem: Problem, budget_nbytes: int, limits: Limits
) -> CheckmateError:
    """Return ``error`` with what is known of the smallest budget."""
    smallest = quote_min_budget(problem, limits)
    known = smallest.describe(problem)
    if smallest.nbytes <= budget_nbytes:
        known += "; try --strategy auto"
    return type(error)(error.message, hint=f"{known}{'; ' + error.hint if error.hint else ''}")
