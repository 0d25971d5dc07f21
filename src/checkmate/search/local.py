"""Local search as a phase: improves any frontier-advancing order, or finds one that fits."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from checkmate.errors import NotFoundError
from checkmate.graph import OpId
from checkmate.heuristics.editing import find_keys
from checkmate.heuristics.keep_all import order_all
from checkmate.heuristics.local_search import Edited, Manner, search_locally
from checkmate.heuristics.tables import make_tables
from checkmate.search.standing import Standing
from checkmate.units import format_nbytes_exactly

STRATEGY = "anneal"


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to search on; counted in work, so that the result is the same anywhere."""

    patience: int
    """Rounds in a row without success after which it ends."""
    n_chunks: int | None = None
    """Chunks of steps after which it ends; None: no limit."""
    seed: int = 0
    ends_when_good: bool = True
    """Whether to end as soon as the order is good enough."""


def anneal(
    standing: Standing, effort: Effort, start: Sequence[OpId] | None = None
) -> Sequence[OpId]:
    """Offer ever better orders until ``effort`` is spent or time is out; return the best of them.

    Begins from ``start``, else from the best order so far, or from that without recompute. Raises
    `NotFoundError` when no order found fits.
    """
    began_s, time_s = time.monotonic(), standing.limits.time_s
    tables = make_tables(standing.problem)
    start = _choose_start(standing) if start is None else start
    best: Edited | None = None
    manner = Manner(effort.patience, effort.seed)
    search = search_locally(tables, standing.budget_nbytes, start, manner)
    for found in islice(search, effort.n_chunks):
        if best is None or found < best:
            best = found
            standing.offer(found.find_order(tables), STRATEGY)
        if standing.is_ended and effort.ends_when_good:
            break
        if time_s is not None and time.monotonic() - began_s >= time_s:
            break
    if best is not None and best.excess_nbytes:
        raise NotFoundError(
            f"no order found that fits in {format_nbytes_exactly(standing.budget_nbytes)}",
            hint="raise --budget",
        )
    return start if best is None else best.find_order(tables)


def _choose_start(standing: Standing) -> Sequence[OpId]:
    """Return the fastest order that can be edited."""
    best, n_ops = standing.best, len(standing.problem.graph.ops)
    if best is not None and find_keys(n_ops, best.order) is not None:
        return best.order
    return standing.order or order_all(standing.problem)
