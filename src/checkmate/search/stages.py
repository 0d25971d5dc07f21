"""The search for chains of stages: fast at any size, with a bound."""

from __future__ import annotations

from collections.abc import Sequence

from checkmate.errors import NotFoundError
from checkmate.graph import OpId
from checkmate.milp.chain import arrange
from checkmate.plan import Claim
from checkmate.problem import Problem
from checkmate.search.bound import check_conceivable
from checkmate.search.chain_search import STRATEGY, ChainSearch, Report
from checkmate.search.claims import run_order
from checkmate.search.finding import Finding, Limits


def solve_stages(
    problem: Problem,
    budget_nbytes: int,
    limits: Limits,
    start: Sequence[OpId] | None = None,
    report: Report = lambda order, bound_ns: None,
) -> Finding:
    """Return the best chain of stages found that fits in ``budget_nbytes``, with a bound.

    ``start`` is an order to begin from; it is returned when it is faster than all that was found,
    without that bound if it is no chain of stages. ``report`` is told of what is found and proved
    meanwhile. Raises `NoneInSpaceError` when it is proved
    that no chain of stages fits, `NotFoundError` or `InterruptError` when the search ended before
    it knew or there are no stages, `SolverError` when HiGHS fails.
    """
    check_conceivable(problem, budget_nbytes)
    in_order = tuple(OpId(i) for i in range(len(problem.graph.ops)))
    if run_order(problem, in_order).peak.nbytes <= budget_nbytes:
        claim = Claim(STRATEGY, "all-schedules", problem.costs.total_ns, "optimal")
        return Finding(in_order, claim)
    search = begin_stages(problem, budget_nbytes)
    known = None if start is None else tuple(start)
    if known is not None and run_order(problem, known).peak.nbytes > budget_nbytes:
        known = None
    return search.run(limits, known, report)


def begin_stages(problem: Problem, budget_nbytes: int) -> ChainSearch:
    """Return a search that has not begun; raise `NotFoundError` for a graph without stages."""
    chain = arrange(problem.graph)
    if chain is None:
        raise NotFoundError(
            f"graph {problem.graph.name!r} has no backward ops, so that it has no stages",
            hint="choose another --strategy",
        )
    return ChainSearch(chain, problem, budget_nbytes)
