"""Memory while a near recompute runs, for the program that bounds all frontier-advancing schedules.

These rows are many: about one coefficient for each near recompute and each tensor that may be in
memory in its stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from checkmate.graph import OpId, TensorId
from checkmate.milp.model import Rows
from checkmate.milp.wide_columns import ONE
from checkmate.milp.wide_near import find_uses
from checkmate.milp.wide_rows import Frame


@dataclass(frozen=True, slots=True)
class _Stage:
    """Per tensor that may be in memory in a stage: the columns that say so."""

    early: Mapping[TensorId, int]
    """For recomputes after its producer's place in the stage."""
    late: Mapping[TensorId, int]
    """For those up to its producer's place."""


def count_window_coefficients(frame: Frame) -> int:
    """Return about how many coefficients `add_window_rows` adds."""
    waiting = [0] * len(frame.graph.ops)
    for e, touches in enumerate(frame.columns.touches):
        producer = frame.graph.tensors[e].producer
        if touches and producer is not None:
            for t in range(producer + 1, touches[-1] + 1):
                waiting[t] += 1
    return sum(len(near) * count for near, count in zip(frame.columns.near, waiting, strict=True))


def add_window_rows(frame: Frame, rows: Rows) -> int:
    """Require memory to fit while a near recompute runs; return the number of columns then.

    The new columns, from `Columns.n_cols` on, say that an input is in memory while it runs.
    """
    n_cols = frame.columns.n_cols
    for t, stage in enumerate(_find_stages(frame)):
        uses = frozenset(find_uses(frame.graph, t))
        for k in frame.columns.near[t]:
            run = frame.columns.run[t, k]
            columns = _find_columns(frame, stage, k)
            for e in frame.graph.ops[k].inputs:
                if e in columns and e not in uses:
                    rows.add_at_most(run, [n_cols])
                    rows.add_at_most(columns[e], [n_cols])
                    columns[e] = n_cols
                    n_cols += 1
                elif e in stage.late and e not in columns:
                    columns[e] = run
            _add_row(frame, rows, k, (run, columns))
    return n_cols


def _add_row(frame: Frame, rows: Rows, k: OpId, counted: tuple[int, dict[TensorId, int]]) -> None:
    """Add the row of a recompute with the column ``run``, beside the tensors that it counts."""
    run, columns = counted
    graph = frame.graph
    own_nbytes = frame.problem.costs.workspace_nbytes[k]
    own = frame.convert(own_nbytes) + sum(
        frame.convert(graph.tensors[e].nbytes) for e in graph.ops[k].outputs
    )
    terms = [(column, frame.convert(graph.tensors[e].nbytes)) for e, column in columns.items()]
    room = frame.convert(frame.budget_nbytes - graph.resident_nbytes)
    if own + sum(size for _, size in terms) > room:
        rows.add([*terms, (run, own)], room)


def _find_columns(frame: Frame, stage: _Stage, k: OpId) -> dict[TensorId, int]:
    """Return, per tensor, the column that says that it is in memory at the place of ``k``."""
    columns: dict[TensorId, int] = {}
    for e, late in stage.late.items():
        producer = frame.graph.tensors[e].producer
        assert producer is not None
        if producer >= k:
            columns[e] = late
        elif e in stage.early:
            columns[e] = stage.early[e]
    return columns


def _find_stages(frame: Frame) -> list[_Stage]:
    columns, n = frame.columns, len(frame.graph.ops)
    early: list[dict[TensorId, int]] = [{} for _ in range(n)]
    late: list[dict[TensorId, int]] = [{} for _ in range(n)]
    for index, touches in enumerate(columns.touches):
        e = TensorId(index)
        for t in touches:
            late[t][e] = columns.state[t, e]
            if e in find_uses(frame.graph, t):
                early[t][e] = ONE
            elif (t + 1, e) in columns.state:
                early[t][e] = columns.state[t + 1, e]
    for one in columns.stretches:
        for t in range(one.first, one.last):
            late[t][one.e] = one.begin if t < one.held else one.least
            early[t][one.e] = one.end if t == one.last - 1 else late[t][one.e]
    return [_Stage(*pair) for pair in zip(early, late, strict=True)]
