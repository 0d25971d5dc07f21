"""A schedule whose arena fits the budget, from searches that count bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from checkmate.arena import count_budget_nbytes, is_within
from checkmate.engine.clock import Clock
from checkmate.errors import InfeasibleError, InterruptError, NotFoundError
from checkmate.graph import OpId
from checkmate.plan import Claim, Termination
from checkmate.problem import Problem
from checkmate.schedule import Schedule
from checkmate.search.finding import Limits
from checkmate.units import format_nbytes_exactly

N_ATTEMPTS = 12
"""Searches, each with another budget of bytes."""
_FINENESS = 256
"""Budgets of bytes closer than one of so many parts of the budget are one."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A schedule of a search, not yet certified."""

    schedule: Schedule
    time_ns: int
    claim: Claim


Find = Callable[[int, Limits], Draft]
"""A search within a budget of bytes."""

Accepts = Callable[[Schedule], bool]
"""Whether a schedule fits as it is written, with all that this adds."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What a schedule has to fit."""

    budget_nbytes: int
    accepts: Accepts | None = None
    """None: nothing is added by writing it."""
    start: tuple[OpId, ...] = ()
    """An order without views that may meet it, beside the best in bytes."""

    def is_met(self, problem: Problem, schedule: Schedule) -> bool:
        """Return whether ``schedule`` runs in the budget, and as it is written too."""
        return is_within(problem, schedule, self.budget_nbytes) and self.is_accepted(schedule)

    def is_accepted(self, schedule: Schedule) -> bool:
        """Return whether ``schedule``, which runs in the budget, does so as it is written."""
        return self.accepts is None or self.accepts(schedule)


def tighten(problem: Problem, goal: Goal, limits: Limits, first: Draft, find: Find) -> Draft:
    """Return the fastest draft found that meets ``goal``, or else whose arena fits its budget.

    ``first`` was found with all of the budget in bytes. When its arena does not fit, the next
    search gets less by what was too much, the one after it less again by twice as much, and so on;
    from then on, budgets halve the way between one that did not fit and one that did, or within
    which nothing was found. What fits in the arena fits in bytes too, so the bound of the first
    holds for all. Raises `NotFoundError` when no arena fits.
    """
    attempts = _Attempts(problem, goal, limits, first)
    while (live_nbytes := attempts.choose_next()) is not None:
        try:
            draft = find(live_nbytes, attempts.share_time())
        except (InfeasibleError, NotFoundError):
            attempts.add_failure(live_nbytes)
        except InterruptError:
            attempts.interrupt()
        else:
            attempts.add(live_nbytes, draft)
    return attempts.take_best()


def halve_time(limits: Limits) -> Limits:
    """Return ``limits`` with half of the time."""
    return limits if limits.time_s is None else replace(limits, time_s=limits.time_s / 2)


class _Attempts:
    """What was tried; budgets of bytes above ``high`` are too much, below ``low`` too little."""

    def __init__(self, problem: Problem, goal: Goal, limits: Limits, first: Draft) -> None:
        self._problem, self._goal, self._limits = problem, goal, limits
        self._budget_nbytes = goal.budget_nbytes
        self._clock = Clock(limits)
        self._claim = first.claim
        self._best: Draft | None = None
        self._spare: Draft | None = None
        """The fastest that fits, but not as it is written."""
        self._n_attempts = 0
        self._low: int | None = None
        self._high = goal.budget_nbytes
        self._excess_nbytes = 0
        self._smallest_nbytes: int | None = None
        self.add(goal.budget_nbytes, first)

    def share_time(self) -> Limits:
        """Return the limits of the next search: half of the time that is left."""
        return self._clock.take(0.5)

    def add(self, live_nbytes: int, draft: Draft) -> None:
        """Note what a search returned."""
        self._n_attempts += 1
        if draft.claim.termination == "interrupted":
            self.interrupt()
        if is_within(self._problem, draft.schedule, self._budget_nbytes):
            self._add_fitting(live_nbytes, draft)
            return
        needed_nbytes = count_budget_nbytes(self._problem, draft.schedule)
        self._high = live_nbytes
        self._excess_nbytes = max(needed_nbytes - self._budget_nbytes, self._step_nbytes)
        self._smallest_nbytes = min(needed_nbytes, self._smallest_nbytes or needed_nbytes)

    def _add_fitting(self, live_nbytes: int, draft: Draft) -> None:
        if self._goal.is_accepted(draft.schedule):
            self._low = live_nbytes
            self._best = _choose_faster(self._best, draft)
            return
        self._high = live_nbytes
        self._excess_nbytes = self._step_nbytes
        self._spare = _choose_faster(self._spare, draft)

    def add_failure(self, live_nbytes: int) -> None:
        """Note that a search found nothing."""
        self._n_attempts += 1
        self._low = live_nbytes

    def interrupt(self) -> None:
        """Note that the user wants no more searches."""
        self._claim = replace(self._claim, termination="interrupted")
        self._n_attempts = N_ATTEMPTS

    def choose_next(self) -> int | None:
        """Return the next budget of bytes to try; None: no more."""
        is_good = self._best is not None and self._is_close(self._best)
        is_last = self._n_attempts >= N_ATTEMPTS or self._clock.is_over
        if is_good or is_last or self._low == self._budget_nbytes:
            return None
        low_nbytes = self._low
        if low_nbytes is None:
            lower_nbytes = self._high - (self._excess_nbytes << (self._n_attempts - 1))
            if lower_nbytes > 0:
                return lower_nbytes
            low_nbytes = 0
        is_fine = self._high - low_nbytes <= self._step_nbytes
        return None if is_fine else (low_nbytes + self._high) // 2

    def take_best(self) -> Draft:
        """Return the fastest draft that fits, with what the first search proved."""
        best = self._best or self._spare
        if best is None:
            known = self._smallest_nbytes or self._budget_nbytes
            what = (
                "no schedule was found whose arena fits in"
                f" {format_nbytes_exactly(self._budget_nbytes)}"
            )
            if self._claim.termination == "interrupted":
                raise InterruptError(f"interrupted: {what}")
            raise NotFoundError(
                what,
                hint="the smallest budget known to work, with what onnxruntime's arena adds to the"
                f" live bytes, is {format_nbytes_exactly(known)}; --no-arena counts bytes alone",
            )
        bound_ns = min(self._claim.bound_ns, best.time_ns)
        claim = replace(self._claim, strategy=best.claim.strategy, bound_ns=bound_ns)
        if best.time_ns == bound_ns:
            claim = replace(claim, termination="optimal")
        elif claim != best.claim:
            is_interrupted = self._claim.termination == "interrupted"
            ending: Termination = "interrupted" if is_interrupted else "limit"
            is_close = self._is_close(best)
            claim = replace(claim, termination="gap" if is_close else ending)
        return replace(best, claim=claim)

    @property
    def _step_nbytes(self) -> int:
        return self._budget_nbytes // _FINENESS

    def _is_close(self, draft: Draft) -> bool:
        """Return whether ``draft`` is as good as asked for, by the bound of the first search."""
        return draft.time_ns <= self._claim.bound_ns * (1 + self._limits.gap)


def _choose_faster(best: Draft | None, draft: Draft) -> Draft:
    return draft if best is None or draft.time_ns < best.time_ns else best
