"""Memory while recomputes run: rows only for the stages that are asked for.

Between the first recompute of a stage and its last op, a tensor is in memory up to its last use.
``need`` is as in `columns`: pairs of an op ``k`` and a column that is 1 when the tensor is still
needed by ``k`` or after it. Deep recomputes make a tensor at times that the program does not know,
so that in their stages it counts only what is there whenever they ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from checkmate.graph import OpId, TensorId, find_readers
from checkmate.milp.chain_columns import NONE, ONE
from checkmate.milp.chain_frame import Frame
from checkmate.milp.model import IntArray, Rows, Term

Need = tuple[tuple[OpId, int], ...]


@dataclass(frozen=True, slots=True)
class Window:
    """The columns of one stage."""

    stage: int
    needs: Mapping[TensorId, Need]
    """Per tensor that a near recompute makes, or that it or the last op reads."""


def make_windows(frame: Frame, stages: Iterable[int]) -> tuple[tuple[Window, ...], int]:
    """Return the windows of ``stages``, and the number of columns with theirs."""
    readers = find_readers(frame.chain.graph)
    count = frame.columns.count
    windows: list[Window] = []
    for s in stages:
        needs: dict[TensorId, Need] = {}
        for e in _find_touched(frame, s):
            needs[e], count = _make_need(frame, s, e, readers[e], count)
        windows.append(Window(s, needs))
    return tuple(windows), count


def add_need_rows(frame: Frame, window: Window, rows: Rows) -> None:
    """Require a tensor to be needed as long as a later reader runs or the next stage has it."""
    for need in window.needs.values():
        for position, (k, column) in enumerate(need[:-1]):
            reader = _find_run(frame, window.stage, k)
            later = need[position + 1][1]
            if column not in (reader, later):
                rows.add_at_most(reader, [column])
                rows.add_at_most(later, [column])


def add_window_rows(frame: Frame, window: Window, rows: Rows) -> None:
    """Require what is in memory to fit while a near recompute runs."""
    s = window.stage
    others = _find_bystanders(frame, window)
    counted = np.flatnonzero((others != NONE) & (frame.sizes > 0))
    columns, sizes = others[counted], frame.sizes[counted]
    room = frame.find_room(int(frame.before_nbytes[frame.chain.stages[s].last]))
    workspaces = frame.problem.costs.workspace_nbytes
    for k in frame.hops.near[s]:
        terms = [*_walk(frame, window, k)]
        workspace = frame.scale.convert(workspaces[k])
        terms.append((frame.columns.run[s, k], workspace))
        rows.add_beside(terms, columns, sizes, room)


def _find_touched(frame: Frame, s: int) -> list[TensorId]:
    graph = frame.chain.graph
    touched = [e for k in frame.hops.near[s] for e in (*graph.ops[k].inputs, *graph.ops[k].outputs)]
    forward = frame.chain.find_forward(touched)
    return list(dict.fromkeys((*forward, *frame.chain.find_last_reads(s))))


def _make_need(
    frame: Frame, s: int, e: TensorId, readers: Sequence[OpId], count: int
) -> tuple[Need, int]:
    """Return the need of ``e`` and the number of columns with those that it added."""
    last = OpId(frame.chain.stages[s].last)
    runs = [(k, frame.columns.run[s, k]) for k in readers if (s, k) in frame.columns.run]
    retained = int(frame.columns.state[s + 1, e])
    end: Need = () if retained == NONE else ((OpId(last + 1), retained),)
    if e in frame.chain.find_last_reads(s):
        return (*((k, ONE) for k, _ in runs), (last, ONE), *end), count
    need = end
    for k, column in reversed(runs):
        own = count if need else column
        count += own == count
        need = ((k, own), *need)
    return need, count


def _find_run(frame: Frame, s: int, k: OpId) -> int:
    return ONE if k == frame.chain.stages[s].last else frame.columns.run[s, k]


def _find_bystanders(frame: Frame, window: Window) -> IntArray:
    """Return, per tensor that the window does not touch, a column of its being there throughout."""
    s, state = window.stage, frame.columns.state
    stays = state[s] == state[s + 1]
    others: IntArray = state[s + 1].copy()
    for e in np.flatnonzero((others != NONE) & ~stays):
        maker = frame.chain.graph.tensors[e].producer
        if frame.hops.deep[s, maker]:
            others[e] = NONE
    others[[*window.needs, *frame.chain.find_last_makes(s)]] = NONE
    return others


def _walk(frame: Frame, window: Window, k: OpId) -> Iterable[Term]:
    """Yield the tensors that the window touches and that are in memory while ``k`` runs."""
    columns = frame.columns
    for e, need in window.needs.items():
        size, maker = float(frame.sizes[e]), frame.chain.graph.tensors[e].producer
        assert maker is not None
        retained = int(columns.state[window.stage, e])
        if size and maker >= k and retained != NONE:
            yield retained, size
        if size and maker == k:
            yield columns.run[window.stage, k], size
        later = next((column for reader, column in need if reader >= k), None)
        if size and maker < k and later is not None:
            yield later, size
