"""Phases in turn: each gets the incumbent and its share of the time that is left.

To add one, write a function that takes a `Standing`, offers it orders and bounds, and put a
`Phase` of it into a tuple of phases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from checkmate.errors import (
    InfeasibleError,
    InternalError,
    InterruptError,
    NotFoundError,
    RunError,
    SolverError,
)
from checkmate.problem import Problem
from checkmate.search.bound import check_conceivable
from checkmate.search.finding import Finding, Limits
from checkmate.search.standing import Standing


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a search, which may improve the order or the bounds, or neither."""

    name: str
    run: Callable[[Standing], None]
    suits: Callable[[Problem], bool] = lambda _problem: True
    """Whether it has any use for a problem."""
    weight: float = 1.0
    """Of the time that is left it gets this, over the weights of all phases that are left."""
    is_stubborn: bool = False
    """Whether it runs out of time too, as long as there is nothing in hand: its first step is
    quick."""
    is_polish: bool = False
    """Whether it runs only once the gap is reached, and then as long as a space wider than that of
    the bound may hold something faster."""


def run_phases(
    problem: Problem, budget_nbytes: int, limits: Limits, phases: Sequence[Phase]
) -> Finding:
    """Return the best that ``phases`` find together, with the best that they prove.

    They end as soon as one reaches the gap, but for those that polish. A phase that fails costs
    what it would have found: the listener is warned, and the next begins from the same incumbent.
    Raises `InfeasibleError` with a proof for all schedules, else what the phases raised when none
    found anything.
    """
    check_conceivable(problem, budget_nbytes)
    standing = Standing(problem, budget_nbytes, limits)
    suited = [phase for phase in phases if phase.suits(problem)]
    for position, phase in enumerate(suited):
        if _is_due(phase, standing):
            weights = sum(later.weight for later in suited[position:] if not later.is_polish)
            _run(phase, standing, 1.0 if phase.is_polish else phase.weight / weights)
    return standing.conclude()


def _is_due(phase: Phase, standing: Standing) -> bool:
    """Return whether it is the turn of ``phase``."""
    if standing.is_out_of_time and not (phase.is_stubborn and standing.best is None):
        return False
    if phase.is_polish:
        return standing.is_good and standing.may_be_polished
    return not standing.is_ended


def _run(phase: Phase, standing: Standing, share: float) -> None:
    try:
        standing.begin(phase.name, share)
        phase.run(standing)
    except (KeyboardInterrupt, InterruptError):
        standing.interrupt()
    except InfeasibleError as error:
        if standing.best is None:
            raise
        standing.fail(InternalError(f"{error.message}, but a schedule fits"))
    except (NotFoundError, RunError, InternalError) as error:
        standing.fail(error)
    except MemoryError:
        standing.fail(SolverError("out of memory"))
    except OSError as error:
        standing.fail(SolverError(f"{error.filename or 'a file'}: {error.strerror}"))
