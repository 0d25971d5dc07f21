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


def run_phases(
    problem: Problem, budget_nbytes: int, limits: Limits, phases: Sequence[Phase]
) -> Finding:
    """Return the best that ``phases`` find together, with the best that they prove.

    They end as soon as one reaches the gap. A phase that fails costs what it would have found: the
    listener is warned, and the next begins from the same incumbent. Raises `InfeasibleError` with
    a proof for all schedules, else what the phases raised when none found anything.
    """
    check_conceivable(problem, budget_nbytes)
    standing = Standing(problem, budget_nbytes, limits)
    suited = [phase for phase in phases if phase.suits(problem)]
    for position, phase in enumerate(suited):
        if standing.is_out_of_time and not (phase.is_stubborn and standing.best is None):
            continue
        weights = sum(later.weight for later in suited[position:])
        _run(phase, standing, phase.weight / weights)
        if standing.is_ended:
            break
    return standing.conclude()


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
