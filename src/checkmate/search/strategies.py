"""The strategies by name: all take a folded problem and a budget, and return a finding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from checkmate.errors import NotFoundError
from checkmate.graph import OpId
from checkmate.heuristics.chen import order_by_sqrt, order_greedily
from checkmate.heuristics.keep_all import order_all
from checkmate.liveness import insert_frees
from checkmate.plan import Claim, Termination
from checkmate.problem import Problem
from checkmate.search.exact import solve_exact
from checkmate.search.finding import Finding, Limits
from checkmate.search.phases import ANNEAL_ON, AUTO, BOUND, GREEDY, KEEP_ALL
from checkmate.search.pipeline import run_phases
from checkmate.search.stages import solve_stages
from checkmate.simulate import simulate
from checkmate.units import format_nbytes_exactly

Strategy = Callable[[Problem, int, Limits], Finding]


def find_automatically(problem: Problem, budget_nbytes: int, limits: Limits) -> Finding:
    """Return the best that the phases of `AUTO` find together.

    Raises `InfeasibleError` with a proof for all schedules, else `NotFoundError`.
    """
    return run_phases(problem, budget_nbytes, limits, AUTO)


def _find_keep_all(problem: Problem, budget_nbytes: int, limits: Limits) -> Finding:
    return _judge("keep-all", problem, budget_nbytes, limits, order_all(problem))


def _find_by_sqrt(problem: Problem, budget_nbytes: int, limits: Limits) -> Finding:
    return _judge("chen-sqrt", problem, budget_nbytes, limits, order_by_sqrt(problem))


def _find_chen_greedily(problem: Problem, budget_nbytes: int, limits: Limits) -> Finding:
    order = order_greedily(problem, budget_nbytes)
    return _judge("chen-greedy", problem, budget_nbytes, limits, order)


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
    "chen-sqrt": _find_by_sqrt,
    "chen-greedy": _find_chen_greedily,
    "greedy": _find_greedily,
    "anneal": _find_by_annealing,
    "exact": _find_exactly,
    "stages": _find_in_stages,
}


def _judge(
    strategy: str, problem: Problem, budget_nbytes: int, limits: Limits, order: Sequence[OpId]
) -> Finding:
    """Return the finding that ``order`` is; no bound is known but the time of every op once."""
    simulation = simulate(problem, insert_frees(problem.graph, order))
    if simulation.peak.nbytes > budget_nbytes:
        raise NotFoundError(
            f"the {strategy} schedule needs {format_nbytes_exactly(simulation.peak.nbytes)},"
            f" more than the budget of {format_nbytes_exactly(budget_nbytes)}"
        )
    bound_ns = problem.costs.total_ns
    extra_ns = simulation.time_ns - bound_ns
    is_close = extra_ns <= limits.gap * bound_ns
    termination: Termination = "optimal" if extra_ns == 0 else "gap" if is_close else "limit"
    return Finding(tuple(order), Claim(strategy, "all-schedules", bound_ns, termination))
