"""What a search by program says of the order that it returns, or of there being none."""

from __future__ import annotations

from collections.abc import Sequence

from checkmate.errors import InterruptError, NoneInSpaceError, NotFoundError
from checkmate.graph import OpId
from checkmate.liveness import insert_frees
from checkmate.plan import Space, Termination
from checkmate.problem import Problem
from checkmate.search.finding import Limits
from checkmate.simulate import Simulation, simulate
from checkmate.solver.result import MilpResult
from checkmate.units import format_nbytes_exactly, format_ns


def run_order(problem: Problem, order: Sequence[OpId]) -> Simulation:
    """Return what ``order`` does when each tensor is freed after its last use."""
    return simulate(problem, insert_frees(problem.graph, order))


def is_close(time_ns: int, bound_ns: int, limits: Limits) -> bool:
    """Return whether ``time_ns`` is as close to ``bound_ns`` as was asked for."""
    return time_ns - bound_ns <= limits.gap * bound_ns


def find_termination(
    time_ns: int, bound_ns: int, limits: Limits, *, interrupted: bool
) -> Termination:
    """Return why a search ended with an order of ``time_ns`` and the bound ``bound_ns``."""
    if time_ns == bound_ns:
        return "optimal"
    if is_close(time_ns, bound_ns, limits):
        return "gap"
    return "interrupted" if interrupted else "limit"


def make_failure(
    problem: Problem, budget_nbytes: int, bound_ns: int, space: Space, result: MilpResult
) -> InterruptError | NotFoundError:
    """Return what to raise when a search in ``space`` ended with ``result`` and no order."""
    budget = format_nbytes_exactly(budget_nbytes)
    if result.status == "infeasible":
        return NoneInSpaceError(
            f"no {space} schedule of {problem.graph.name!r} fits in {budget}",
            hint="raise --budget",
        )
    what = (
        f"no schedule found that fits in {budget}; none that does takes less than"
        f" {format_ns(bound_ns)}"
    )
    if result.status == "interrupted":
        return InterruptError(f"interrupted: {what}")
    return NotFoundError(what, hint="raise the limits or --budget")
