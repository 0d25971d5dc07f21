"""Local search as a phase: improves any frontier-advancing order, or finds one that fits."""

from __future__ import annotations

import time

from checkmate.errors import NotFoundError
from checkmate.heuristics.keep_all import order_all
from checkmate.heuristics.local_search import Edited, search_locally
from checkmate.heuristics.tables import make_tables
from checkmate.search.standing import Standing
from checkmate.units import format_nbytes_exactly

STRATEGY = "anneal"


def anneal(standing: Standing, patience: int) -> None:
    """Offer ever better orders until ``patience`` rounds in a row have found nothing better.

    Also ends when the order is good enough or the phase is out of time. Begins from the best order
    so far, or from that without recompute. Raises `NotFoundError` when no order found fits.
    """
    began_s, time_s = time.monotonic(), standing.limits.time_s
    tables = make_tables(standing.problem)
    start = standing.order or order_all(standing.problem)
    best: Edited | None = None
    for found in search_locally(tables, standing.budget_nbytes, start, patience):
        if best is None or found < best:
            best = found
            standing.offer(found.find_order(tables), STRATEGY)
        if standing.is_ended or (time_s is not None and time.monotonic() - began_s >= time_s):
            break
    if best is not None and best.excess_nbytes:
        raise NotFoundError(
            f"no order found that fits in {format_nbytes_exactly(standing.budget_nbytes)}",
            hint="raise --budget",
        )
