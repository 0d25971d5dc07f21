"""A schedule whose arena fits the budget, near the best one that fits it in bytes."""

from __future__ import annotations

import time
from dataclasses import replace

from checkmate.engine.tighten import Draft, Find, tighten
from checkmate.folding import Folding
from checkmate.heuristics.packing import PackingLimits, pack
from checkmate.liveness import insert_frees
from checkmate.plan import Claim
from checkmate.search.finding import Limits
from checkmate.simulate import simulate


def fit(folding: Folding, budget_nbytes: int, limits: Limits, first: Draft, find: Find) -> Draft:
    """Return the fastest draft found whose arena fits in ``budget_nbytes``.

    ``first`` is the best in bytes; its arena does not fit. What fits in the arena fits in bytes
    too, so the bound of ``first`` holds for all. Raises `NotFoundError` when no arena fits.
    """
    problem, bound_ns = folding.original, first.claim.bound_ns
    deadline_s = None if limits.time_s is None else time.monotonic() + limits.time_s / 2
    good_ns = int(bound_ns * (1 + limits.gap)) - folding.view_ns
    start = folding.fold(first.schedule.order)
    order = pack(folding.folded, budget_nbytes, start, PackingLimits(good_ns, deadline_s))
    if order is None:
        return tighten(problem, budget_nbytes, limits, first, find)
    schedule = insert_frees(problem.graph, folding.unfold(order))
    time_ns = simulate(problem, schedule).time_ns
    return Draft(schedule, time_ns, _claim(first.claim, time_ns, limits))


def _claim(claim: Claim, time_ns: int, limits: Limits) -> Claim:
    """Return what ``claim``, of a search in bytes, proves for a schedule of ``time_ns``.

    A schedule outside of the space of the bound may be ahead of it; then nothing in that space is
    faster.
    """
    if time_ns <= claim.bound_ns:
        return replace(claim, bound_ns=time_ns, termination="optimal")
    is_close = time_ns <= claim.bound_ns * (1 + limits.gap)
    return replace(claim, termination="gap" if is_close else "limit")
