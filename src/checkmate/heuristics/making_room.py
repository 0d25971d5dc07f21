"""Make room in the arena: free a few neighbours where a request does not fit, compute them later.

Bytes that are free but apart from each other are of no use to a large request. So what is evicted
must lie together: of all stretches of chunks that would hold the request, those whose tensors take
least time to make again are tried, and the one that helps most for its time is taken. This is
the sliding window of Zhang et al., "Coop: Memory is not a Commodity", NeurIPS 2023, section 3.2,
for a schedule made ahead: a freed tensor is freed after its last read before the request.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from checkmate.graph import OpId, TensorId
from checkmate.heuristics.arena_tables import (
    FREE,
    HELD,
    ArenaTables,
    Chunk,
    Filled,
    Overflow,
    fill,
    find_deaths,
)
from checkmate.heuristics.pruning import Layout
from checkmate.heuristics.tables import Tables
from checkmate.liveness import remove_unread

_N_WINDOWS = 6
"""Stretches that are tried where a request does not fit."""
_PATIENCE = 12
"""Steps without progress after which it is given up."""

Order = tuple[OpId, ...]


@dataclass(frozen=True, slots=True)
class _Bans:
    """What a step must not lead to."""

    seen: Collection[Order]
    kept: Collection[TensorId]
    """Tensors that are not evicted."""


def make_room(
    tables: ArenaTables,
    order: Sequence[OpId],
    most_ns: float = math.inf,
    kept: Collection[TensorId] = (),
) -> Order | None:
    """Return ``order`` with recomputes added until it fits in its arena; None: no way was found.

    Gives up above ``most_ns``, and evicts none of ``kept``.
    """
    current = tuple(order)
    filled = fill(tables, current)
    least_nbytes, patience = filled.excess_nbytes, _PATIENCE
    seen = {current}
    while filled.excess_nbytes:
        step = _take_step(tables, current, filled, _Bans(seen, kept))
        if step is None or not patience or sum_ns(tables.tables, step[0]) > most_ns:
            return None
        current, filled = step
        seen.add(current)
        patience = _PATIENCE if filled.excess_nbytes < least_nbytes else patience - 1
        least_nbytes = min(least_nbytes, filled.excess_nbytes)
    return current


def drop_recomputes(tables: ArenaTables, order: Order) -> Order:
    """Return ``order``, which fits, without recomputes that the arena does not call for."""
    times = tables.tables.time_ns
    while True:
        layout = Layout(tables.tables, order)
        nbytes = tables.live_limit_nbytes + tables.tables.resident_nbytes
        ranked = sorted(layout.find_recomputes(), key=lambda at: (-times[order[at]], at))
        is_better = False
        for position in ranked:
            if layout.try_remove(position, nbytes):
                if fill(tables, layout.order, stops=True).excess_nbytes:
                    layout.restore()
                else:
                    is_better = True
        if not is_better:
            return order
        order = layout.order


def _take_step(
    tables: ArenaTables, order: Order, filled: Filled, bans: _Bans
) -> tuple[Order, Filled] | None:
    """Return the best order that frees a stretch for the first overflow."""
    if filled.overflow is None:
        return None
    best: tuple[tuple[int, float], Order, Filled] | None = None
    before_ns = sum_ns(tables.tables, order)
    windows = _find_windows(tables.tables, order, filled.overflow, bans.kept)
    for window in windows[:_N_WINDOWS]:
        changed = _evict(tables, order, filled.overflow.position, window)
        if changed is None or changed in bans.seen:
            continue
        now = fill(tables, changed)
        gained_nbytes = filled.excess_nbytes - now.excess_nbytes
        added_ns = sum_ns(tables.tables, changed) - before_ns
        is_worse = gained_nbytes <= 0
        rank = (is_worse, float(-gained_nbytes) if is_worse else (added_ns + 1) / gained_nbytes)
        if best is None or rank < best[0]:
            best = rank, changed, now
    return None if best is None else best[1:]


def _find_windows(
    tables: Tables, order: Order, overflow: Overflow, kept: Collection[TensorId]
) -> list[tuple[TensorId, ...]]:
    """Return the tensors of each stretch that holds the request, the fastest to make first."""
    op = order[overflow.position]
    pinned = {HELD, *kept, *tables.reads[op], *tables.makes[op]}
    chunks = overflow.chunks
    found = dict.fromkeys(
        window
        for start in range(len(chunks))
        for window in _stretch(tables, chunks[start:], overflow.nbytes, pinned)
    )
    return sorted(found, key=lambda window: (_sum_window_ns(tables, window), window))


def _stretch(
    tables: Tables, chunks: Sequence[Chunk], nbytes: int, pinned: set[TensorId]
) -> Iterator[tuple[TensorId, ...]]:
    """Yield the tensors of the first ``chunks`` that hold ``nbytes``, if all of them may go."""
    window: list[TensorId] = []
    address = chunks[0].address
    for chunk in chunks:
        may_go = chunk.tensor not in pinned and (
            chunk.tensor == FREE or tables.recomputable[tables.producers[chunk.tensor]]
        )
        if chunk.address != address or not may_go:
            return
        window += [] if chunk.tensor == FREE else [chunk.tensor]
        address += chunk.nbytes
        if address - chunks[0].address >= nbytes:
            yield tuple(window)
            return


def _evict(
    arena: ArenaTables, order: Order, position: int, evicted: Sequence[TensorId]
) -> Order | None:
    """Return ``order`` with ``evicted`` not in memory from ``position`` until they are needed.

    None: they could not be made again.
    """
    tables = arena.tables
    live = [producer < 0 for producer in tables.producers]
    changed: list[OpId] = []
    for at, (op, dying) in enumerate(zip(order, find_deaths(tables, order), strict=True)):
        _mark(live, evicted if at == position else (), is_live=False)
        missing = _find_missing(tables, live, tables.reads[op])
        if missing is None:
            return None
        changed += (*missing, op)
        for again in (*missing, op):
            _mark(live, tables.makes[again], is_live=True)
        _mark(live, dying, is_live=False)
    is_whole = all(live[output] for output in tables.outputs)
    return remove_unread(arena.graph, changed) if is_whole else None


def _mark(live: list[bool], tensors: Sequence[TensorId], *, is_live: bool) -> None:
    for tensor in tensors:
        live[tensor] = is_live


def _find_missing(
    tables: Tables, live: Sequence[bool], tensors: Sequence[TensorId]
) -> list[OpId] | None:
    """Return the ops to run to have ``tensors``, in graph order; None: one of them may not."""
    found: set[OpId] = set()
    pending = [tables.producers[tensor] for tensor in tensors if not live[tensor]]
    while pending:
        op = pending.pop()
        if not tables.recomputable[op]:
            return None
        if op not in found:
            found.add(op)
            pending += [tables.producers[read] for read in tables.reads[op] if not live[read]]
    return sorted(found)


def sum_ns(tables: Tables, order: Sequence[OpId]) -> int:
    """Return the time of ``order``."""
    return sum([tables.time_ns[op] for op in order])


def _sum_window_ns(tables: Tables, window: Sequence[TensorId]) -> int:
    return sum_ns(tables, sorted({tables.producers[tensor] for tensor in window}))
