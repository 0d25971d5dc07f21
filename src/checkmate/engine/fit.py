"""A schedule whose arena fits the budget, near the best one that fits it in bytes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from checkmate.engine.clock import Clock
from checkmate.engine.tighten import Draft, Find, Goal, tighten
from checkmate.errors import InterruptError, NotFoundError
from checkmate.folding import Folding
from checkmate.graph import OpId
from checkmate.heuristics.packing import PackingLimits, pack
from checkmate.plan import Claim, Termination
from checkmate.problem import Problem
from checkmate.search.finding import Limits
from checkmate.search.smallest import find_smallest
from checkmate.simulate import simulate

Order = tuple[OpId, ...]


_DEAR = 0.05
"""How much longer than the best in bytes a schedule may take before searches in fewer bytes, which
take far longer than to make room, are tried too, where a clock ends them."""
_MOST_S = 10.0
"""How long these may take."""
_SMALLEST_SHARE = 0.25
"""Of the time that is left, for an order of few bytes."""


def fit(folding: Folding, goal: Goal, limits: Limits, first: Draft, find: Find) -> Draft:
    """Return the fastest draft found that meets ``goal``.

    ``first`` is the best in bytes, and does not. What fits in the arena fits in bytes too, so the
    bound of ``first`` holds for all. A Ctrl-C ends the search with the best so far. Raises
    `NotFoundError` when no arena fits.
    """
    clock, problem = Clock(limits), folding.original
    order, claim = _pack(folding, goal, clock.take(0.5), first)
    if order is None and claim.termination != "interrupted":
        order, claim = _pack_from_smallest(folding, goal, clock, first)
    first = replace(first, claim=claim)
    if order is None:
        return tighten(problem, goal, clock.take(), first, find)
    schedule = folding.lay_out(order)
    time_ns = simulate(problem, schedule).time_ns
    packed = Draft(schedule, time_ns, _claim(claim, time_ns, limits))
    left_s = clock.take().time_s
    is_dear = time_ns > first.time_ns * (1 + _DEAR)
    if not is_dear or left_s is None or claim.termination == "interrupted":
        return packed
    rest = replace(limits, time_s=min(_MOST_S, left_s))
    return _take_faster(packed, problem, goal, lambda: tighten(problem, goal, rest, first, find))


def _take_faster(packed: Draft, problem: Problem, goal: Goal, search: Callable[[], Draft]) -> Draft:
    """Return what ``search`` finds where that is faster than ``packed`` and meets ``goal``."""
    interrupted = replace(packed, claim=replace(packed.claim, termination="interrupted"))
    try:
        other = search()
    except NotFoundError:
        return packed
    except InterruptError:
        return interrupted
    if other.time_ns < packed.time_ns and goal.is_met(problem, other.schedule):
        return other
    return interrupted if other.claim.termination == "interrupted" else packed


def _pack(folding: Folding, goal: Goal, limits: Limits, first: Draft) -> tuple[Order | None, Claim]:
    """Return the fastest order found by making room in ``first`` and in others, and what it proves.

    None: none meets the goal.
    """
    accepted: list[Order] = []

    def accepts(order: Order) -> bool:
        is_met = goal.is_met(folding.original, folding.lay_out(order))
        if is_met:
            accepted.append(order)
        return is_met

    claim = first.claim
    deadline_s = None if limits.time_s is None else time.monotonic() + limits.time_s
    if claim.termination == "interrupted":
        deadline_s = 0.0
    good_ns = int(claim.bound_ns * (1 + limits.gap)) - folding.view_ns
    starts = tuple(filter(None, (folding.fold(first.schedule.order), goal.start)))
    until = PackingLimits(good_ns, deadline_s)
    try:
        if goal.start:
            accepts(goal.start)
        pack(folding.folded, goal.budget_nbytes, starts, until, accepts)
    except KeyboardInterrupt:
        claim = replace(claim, termination="interrupted")
    times_ns = folding.folded.costs.time_ns
    return min(accepted, key=lambda order: sum(times_ns[op] for op in order), default=None), claim


def _pack_from_smallest(
    folding: Folding, goal: Goal, clock: Clock, first: Draft
) -> tuple[Order | None, Claim]:
    """Return what `_pack` does, from what takes the fewest bytes and so leaves the most room."""
    smallest = find_smallest(folding.folded, clock.take(_SMALLEST_SHARE))
    if smallest.is_interrupted:
        return None, replace(first.claim, termination="interrupted")
    return _pack(folding, replace(goal, start=smallest.order), clock.take(0.5), first)


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
