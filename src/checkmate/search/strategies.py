"""The strategies by name: all take a folded problem and a budget, and return a finding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from checkmate.graph import OpId
from checkmate.heuristics.keep_all import order_all
from checkmate.problem import Problem
from checkmate.search.claims import judge
from checkmate.search.exact import solve_exact
from checkmate.search.finding import Finding, Limits
from checkmate.search.phases import ANNEAL_ON, AUTO, BOUND, GREEDY, KEEP_ALL
from checkmate.search.pipeline import Phase, run_phases
from checkmate.search.published import (
    find_by_ap_greedy,
    find_by_ap_sqrt,
    find_by_chain_greedy,
    find_by_chain_sqrt,
    find_by_last,
    find_by_linearized_greedy,
    find_by_linearized_sqrt,
    find_by_revolve,
)
from checkmate.search.rounding import solve_by_rounding
from checkmate.search.stages import solve_stages
from checkmate.search.standing import Standing

Strategy = Callable[[Problem, int, Limits], Finding]


def find_automatically(problem: Problem, budget_nbytes: int, limits: Limits) -> Finding:
    """Return the best that the phases of `AUTO` find together.

    Raises `InfeasibleError` with a proof for all schedules, else `NotFoundError`.
    """
    return run_phases(problem, budget_nbytes, limits, AUTO)


def begin_from(order: Sequence[OpId], name: str) -> Strategy:
    """Return the strategy ``name`` as one that never does worse than ``order``, where it fits.

    A sweep that goes up from budget to budget and begins each from the order of the one before it
    never gets slower as the budget grows.
    """

    def start(standing: Standing) -> None:
        standing.offer(order, "start")

    def run(standing: Standing) -> None:
        args = standing.problem, standing.budget_nbytes, standing.limits
        finding = STRATEGIES[name](*args)
        standing.offer(finding.order, finding.claim.strategy)
        standing.raise_bound(finding.claim.space, finding.claim.bound_ns)

    phases = AUTO if name == "auto" else (Phase(name, run),)
    first = Phase("start", start, is_stubborn=True)

    def find(problem: Problem, budget_nbytes: int, limits: Limits) -> Finding:
        return run_phases(problem, budget_nbytes, limits, (first, *phases))

    return find


def _find_keep_all(problem: Problem, budget_nbytes: int, limits: Limits) -> Finding:
    return judge("keep-all", problem, budget_nbytes, limits, order_all(problem))


def _find_greedily(problem: Problem, budget_nbytes: int, limits: Limits) -> Finding:
    return run_phases(problem, budget_nbytes, limits, (GREEDY,))


def _find_by_annealing(problem: Problem, budget_nbytes: int, limits: Limits) -> Finding:
    return run_phases(problem, budget_nbytes, limits, (KEEP_ALL, GREEDY, ANNEAL_ON, BOUND))


def _find_exactly(problem: Problem, budget_nbytes: int, limits: Limits) -> Finding:
    return solve_exact(problem, budget_nbytes, limits)


def _find_in_stages(problem: Problem, budget_nbytes: int, limits: Limits) -> Finding:
    return solve_stages(problem, budget_nbytes, limits)


STRATEGIES: Mapping[str, Strategy] = {
    "auto": find_automatically,
    "keep-all": _find_keep_all,
    "checkpoint-last": find_by_last,
    "chen-sqrt": find_by_chain_sqrt,
    "chen-greedy": find_by_chain_greedy,
    "ap-sqrt": find_by_ap_sqrt,
    "ap-greedy": find_by_ap_greedy,
    "linearized-sqrt": find_by_linearized_sqrt,
    "linearized-greedy": find_by_linearized_greedy,
    "revolve": find_by_revolve,
    "rounding": solve_by_rounding,
    "greedy": _find_greedily,
    "anneal": _find_by_annealing,
    "exact": _find_exactly,
    "stages": _find_in_stages,
}
