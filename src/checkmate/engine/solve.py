"""From a problem and a budget to a plan."""

from __future__ import annotations

from dataclasses import replace

from checkmate.arena import count_budget_nbytes
from checkmate.engine.tighten import Draft, halve_time, tighten
from checkmate.errors import CheckmateError, InfeasibleError, NotFoundError
from checkmate.folding import Folding, fold_views
from checkmate.graph import OpId
from checkmate.heuristics.greedy import find_smallest_budget
from checkmate.liveness import insert_frees, remove_unread
from checkmate.plan import Claim, Plan, certify
from checkmate.problem import Problem
from checkmate.search.finding import Limits
from checkmate.search.phases import GREEDY_EFFORT
from checkmate.search.strategies import STRATEGIES
from checkmate.simulate import Simulation, simulate
from checkmate.units import format_nbytes_exactly

_LARGE_N_OPS = 2000
"""Above this many ops, the smallest budget is looked for with one parameter set."""


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


def solve(problem: Problem, budget_nbytes: int, strategy: str, limits: Limits) -> Plan:
    """Return the certified plan of ``strategy``, a name of `STRATEGIES`, within the budget.

    In its arena, when ``problem`` has one. Raises `InfeasibleError` when it is proved that nothing
    fits, `NotFoundError` when nothing was found; both say the smallest budget that is known to
    work.
    """
    folding = fold_views(problem)

    def find(live_nbytes: int, limits: Limits) -> Draft:
        finding = STRATEGIES[strategy](folding.folded, live_nbytes, limits)
        order = remove_unread(folding.folded.graph, finding.order)
        schedule = insert_frees(problem.graph, folding.unfold(order))
        time_ns = simulate(problem, schedule).time_ns
        return Draft(schedule, time_ns, _raise_bound(finding.claim, folding.view_ns, time_ns))

    is_arena = problem.arena is not None
    try:
        draft = find(budget_nbytes, halve_time(limits) if is_arena else limits)
    except (InfeasibleError, NotFoundError) as error:
        raise _add_smallest_budget(error, folding, budget_nbytes) from error
    if is_arena:
        draft = tighten(problem, budget_nbytes, halve_time(limits), draft, find)
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
    error: CheckmateError, folding: Folding, budget_nbytes: int
) -> CheckmateError:
    """Return ``error`` with the smallest budget known to work and the op that binds there."""
    problem = folding.original
    is_large = len(problem.graph.ops) > _LARGE_N_OPS
    _, order = find_smallest_budget(folding.folded, 1 if is_large else GREEDY_EFFORT)
    schedule = insert_frees(problem.graph, folding.unfold(order))
    peak = simulate(problem, schedule).peak
    nbytes = max(peak.nbytes, count_budget_nbytes(problem, schedule))
    where = "" if peak.op is None else f", where op {problem.graph.ops[peak.op].name!r} binds"
    known = f"the smallest budget known to work is {format_nbytes_exactly(nbytes)}{where}"
    if nbytes <= budget_nbytes:
        known += "; try --strategy auto"
    return type(error)(error.message, hint=f"{known}{'; ' + error.hint if error.hint else ''}")
