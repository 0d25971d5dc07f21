"""A schedule whose arena fits the budget, near the best one that fits it in bytes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from checkmate.arena import is_within
from checkmate.engine.tighten import Draft, Find, tighten
from checkmate.folding import Folding
from checkmate.graph import OpId
from checkmate.heuristics.packing import PackingLimits, pack
from checkmate.liveness import insert_frees
from checkmate.plan import Claim, Termination
from checkmate.problem import Problem
from checkmate.schedule import Schedule
from checkmate.search.finding import Limits
from checkmate.simulate import simulate

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
        is_fit = is_within(problem, schedule, self.budget_nbytes)
        return is_fit and (self.accepts is None or self.accepts(schedule))


def fit(folding: Folding, goal: Goal, limits: Limits, first: Draft, find: Find) -> Draft:
    """Return the fastest draft found that meets ``goal``.

    ``first`` is the best in bytes, and does not. What fits in the arena fits in bytes too, so the
    bound of ``first`` holds for all. A Ctrl-C ends the search with the best so far. Raises
    `NotFoundError` when no arena fits.
    """
    accepted: list[tuple[OpId, ...]] = []

    def accepts(order: tuple[OpId, ...]) -> bool:
        is_met = goal.is_met(folding.original, _lay_out(folding, order))
        if is_met:
            accepted.append(order)
        return is_met

    deadline_s = None if limits.time_s is None else time.monotonic() + limits.time_s / 2
    if first.claim.termination == "interrupted":
        deadline_s = 0.0
    good_ns = int(first.claim.bound_ns * (1 + limits.gap)) - folding.view_ns
    starts = tuple(filter(None, (folding.fold(first.schedule.order), goal.start)))
    until = PackingLimits(good_ns, deadline_s)
    try:
        pack(folding.folded, goal.budget_nbytes, starts, until, accepts)
    except KeyboardInterrupt:
        first = replace(first, claim=replace(first.claim, termination="interrupted"))
    if not accepted:
        return tighten(folding.original, goal.budget_nbytes, limits, first, find)
    # What is accepted is faster than what was accepted before.
    schedule = _lay_out(folding, accepted[-1])
    time_ns = simulate(folding.original, schedule).time_ns
    return Draft(schedule, time_ns, _claim(first.claim, time_ns, limits))


def _lay_out(folding: Folding, order: tuple[OpId, ...]) -> Schedule:
    return insert_frees(folding.original.graph, folding.unfold(order))


def _claim(claim: Claim, time_ns: int, limits: Limits) -> Claim:
    """Return what ``claim``, of a search in bytes, proves for a schedule of ``time_ns``.

    A schedule outside of the space of the bound may be ahead of it; then nothing in that space is
    faster.
    """
    if time_ns <= claim.bound_ns:
        return replace(claim, bound_ns=time_ns, termination="optimal")
    ending: Termination = "interrupted" if claim.termination == "interrupted" else "limit"
    is_close = time_ns <= claim.bound_ns * (1 + limits.gap)
    return replace(claim, termination="gap" if is_close else ending)
