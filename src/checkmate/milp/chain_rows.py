"""The rows of the program of a chain, one function a family; its name says the sentence.

`docs/chain-of-stages.md` proves that every schedule of the class that fits is a point of the
program at no more than its own cost, whatever the depth of the near recomputes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from checkmate.graph import OpId, TensorId
from checkmate.milp.chain_columns import NONE, ONE
from checkmate.milp.chain_frame import Frame
from checkmate.milp.model import IntArray, Rows

Family = Callable[[Frame, Rows], None]


def add_run_rows(frame: Frame, rows: Rows) -> None:
    """Require a near recompute to have its inputs, retained or made, unless made by a deep one."""
    for (s, k), column in frame.columns.run.items():
        for e in frame.chain.find_forward(frame.chain.graph.ops[k].inputs):
            maker = frame.chain.graph.tensors[e].producer
            if not frame.hops.deep[s, maker]:
                rows.add_at_most(column, _find_sources(frame, s, e))


def add_read_rows(frame: Frame, rows: Rows) -> None:
    """Require the last op of a stage to have what it reads, either retained or made."""
    for s in range(len(frame.chain.stages)):
        for e in frame.chain.find_last_reads(s):
            maker = frame.chain.graph.tensors[e].producer
            if not frame.hops.deep[s, maker]:
                rows.add_at_most(ONE, _find_sources(frame, s, e))


def add_retention_rows(frame: Frame, rows: Rows) -> None:
    """Require what is retained to have been so before, or made since, near or deep."""
    columns = frame.columns
    for position, (span, column) in enumerate(columns.spans):
        if not span.before:
            continue
        sources = [columns.spans[position - 1][1]]
        if span.source is not None and span.source.is_near:
            sources.append(columns.run[span.source.first, span.source.maker])
        elif span.source is not None:
            sources.append(columns.find_return(span.source))
        rows.add_at_most(column, sources)


def add_memory_rows(frame: Frame, rows: Rows) -> None:
    """Require what is in memory to fit while an op runs that runs once."""
    _add_forward_rows(frame, rows)
    state, fixed = frame.columns.state, frame.fixed_nbytes
    for s, stage in enumerate(frame.chain.stages):
        if stage.first < stage.last:
            most_nbytes = int(fixed[stage.first : stage.last].max())
            _add_state_row(frame, rows, state[s], most_nbytes)
        after = state[s + 1].copy()
        after[[*frame.chain.find_last_reads(s), *frame.chain.find_last_makes(s)]] = NONE
        _add_state_row(frame, rows, after, int(fixed[stage.last]))


def add_again_rows(frame: Frame, rows: Rows) -> None:
    """Require an op to be recomputed when it is so in some stage, and only then."""
    columns = frame.columns
    runs: dict[OpId, list[int]] = {}
    for (_, k), column in columns.run.items():
        runs.setdefault(k, []).append(column)
    for k, again in columns.again.items():
        given = [*runs[k], *(one.column for one in columns.returns.get(k, ()))]
        for column in given:
            rows.add_at_most(column, [again])
        rows.add_at_most(again, given)


def add_closure_rows(frame: Frame, rows: Rows) -> None:
    """Require a recompute of what is not retained once it was first made, but is read later.

    The last ops of stages read it, or recomputes do.
    """
    columns, chain = frame.columns, frame.chain
    for e in sorted({e for s in range(len(chain.stages)) for e in chain.find_last_reads(s)}):
        _add_closure_row(frame, rows, ONE, e)
    for k, again in columns.again.items():
        for e in chain.find_forward(chain.graph.ops[k].inputs):
            _add_closure_row(frame, rows, again, e)


FAMILIES: Mapping[str, Family] = {
    "run": add_run_rows,
    "read": add_read_rows,
    "retention": add_retention_rows,
    "memory": add_memory_rows,
    "again": add_again_rows,
    "closure": add_closure_rows,
}


def _add_forward_rows(frame: Frame, rows: Rows) -> None:
    """Add the rows of the forward pass, where what is read there is in memory in any case.

    A row is left out where a later one has all its tensors and no less that is fixed.
    """
    fixed, n_forward = frame.fixed_nbytes, frame.chain.n_forward
    made, read = _find_forward_uses(frame)
    most_nbytes = -1
    for k in reversed(range(n_forward)):
        if fixed[k] > most_nbytes:
            most_nbytes = int(fixed[k])
            waiting = np.where((made <= k) & (read < k), frame.columns.state[0], NONE)
            _add_state_row(frame, rows, waiting, most_nbytes)


def _find_forward_uses(frame: Frame) -> tuple[IntArray, IntArray]:
    """Return, per tensor, where the forward pass makes it and where it last reads it there."""
    graph, n_forward = frame.chain.graph, frame.chain.n_forward
    made = np.array([n_forward if t.producer is None else t.producer for t in graph.tensors])
    read = made.copy()
    for k in range(n_forward):
        read[list(graph.ops[k].inputs)] = k
    return made, read


def _add_state_row(frame: Frame, rows: Rows, state: IntArray, fixed_nbytes: int) -> None:
    """Add the row that the tensors of ``state``, by column, fit beside ``fixed_nbytes``."""
    counted = np.flatnonzero((state != NONE) & (frame.sizes > 0))
    sizes, room = frame.sizes[counted], frame.find_room(fixed_nbytes)
    if sizes.sum() > room:
        rows.add_arrays(state[counted], sizes, room)


def _find_sources(frame: Frame, s: int, e: TensorId) -> list[int]:
    """Return the columns of ``e`` being retained into stage ``s`` and of being made in it."""
    maker = frame.chain.graph.tensors[e].producer
    assert maker is not None
    sources = (int(frame.columns.state[s, e]), frame.columns.run.get((s, maker), NONE))
    return [column for column in sources if column != NONE]


def _add_closure_row(frame: Frame, rows: Rows, reader: int, e: TensorId) -> None:
    """Require ``e`` to be retained from when it was first made, or its producer recomputed."""
    maker = frame.chain.graph.tensors[e].producer
    assert maker is not None
    again = frame.columns.again.get(maker, NONE)
    start = int(frame.columns.state[frame.chain.births[maker], e])
    rows.add_at_most(reader, [column for column in (start, again) if column != NONE])
