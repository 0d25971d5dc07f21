"""The strategies by name: all take a folded problem and a budget, and return a finding."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence

from checkmate.errors import InfeasibleError, NotFoundError
from checkmate.graph import OpId
from checkmate.heuristics.greedy import order_within
from checkmate.heuristics.keep_all import order_all
from checkmate.problem import Problem
from checkmate.search.bound import check_conceivable
from checkmate.search.claims import judge
from checkmate.search.exact import solve_exact
from checkmate.search.exhaust import find_any_order
from checkmate.search.finding import Finding, Limits
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
from checkmate.units import format_nbytes_exactly

Strategy = Callable[[Problem, int, Limits], Finding]

GREEDY_EFFORT = 8
"""Parameter sets that the greedy tries."""
EXACT_MAX_OPS = 200
"""Up to this many ops the paper's program is tried: its size grows with their square."""


def find_automatically(problem: Problem, budget_nbytes: int, limits: Limits) -> Finding:
    """Return the best that the strategies find together.

    Keep-all when it fits; else the greedy, which the paper's program then improves and bounds
    where the graph is small enough for it, and the search for chains of stages elsewhere. Raises
    `InfeasibleError` with a proof for all schedules, else `NotFoundError`.
    """
    check_conceivable(problem, budget_nbytes)
    with contextlib.suppress(NotFoundError):
        return _find_keep_all(problem, budget_nbytes, limits)
    is_small = len(problem.graph.ops) <= EXACT_MAX_OPS
    try:
        found = _find_greedily(problem, budget_nbytes, limits)
    except NotFoundError:
        find = _find_despite_greedy if is_small else _find_in_stages
        return find(problem, budget_nbytes, limits)
    if found.claim.termination != "limit":
        return found
    improve = solve_exact if is_small else _improve_in_stages
    return improve(problem, budget_nbytes, limits, found.order)


def _find_despite_greedy(problem: Problem, budget_nbytes: int, limits: Limits) -> Finding:
    """Return what the program finds, or else anything that fits; or prove that nothing does."""
    try:
        return solve_exact(problem, budget_nbytes, limits)
    except NotFoundError as error:
        try:
            order = find_any_order(problem, budget_nbytes)
        except NotFoundError:
            raise error from None
    if order is None:
        raise InfeasibleError(
            f"no schedule of this op order fits in {format_nbytes_exactly(budget_nbytes)}"
        )
    return judge("exhaustive", problem, budget_nbytes, limits, order)


def _find_keep_all(problem: Problem, budget_nbytes: int, limits: Limits) -> Finding:
    return judge("keep-all", problem, budget_nbytes, limits, order_all(problem))


def _find_greedily(problem: Problem, budget_nbytes: int, limits: Limits) -> Finding:
    effort = _find_effort(problem, budget_nbytes, limits)
    order = order_within(problem, budget_nbytes, effort)
    return judge("greedy", problem, budget_nbytes, limits, order)


def _find_effort(problem: Problem, budget_nbytes: int, limits: Limits) -> int:
    """Return how many parameter sets there is time for: one is tried to see how long it takes."""
    if limits.time_s is None:
        return GREEDY_EFFORT
    started = time.monotonic()
    with contextlib.suppress(NotFoundError):
        order_within(problem, budget_nbytes, 1)
    taken_s = time.monotonic() - started
    left_s = limits.time_s - taken_s
    return max(1, min(GREEDY_EFFORT, int(left_s / max(taken_s, 1e-6))))


def _find_exactly(problem: Problem, budget_nbytes: int, limits: Limits) -> Finding:
    return solve_exact(problem, budget_nbytes, limits)


def _improve_in_stages(
    problem: Problem, budget_nbytes: int, limits: Limits, order: Sequence[OpId]
) -> Finding:
    """Return the best that begins from the greedy's ``order``; itself where there are no stages."""
    try:
        return solve_stages(problem, budget_nbytes, limits, order)
    except NotFoundError:
        return judge("greedy", problem, budget_nbytes, limits, order)


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
    "exact": _find_exactly,
    "stages": _find_in_stages,
}
