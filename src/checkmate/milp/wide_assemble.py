"""The program that bounds all frontier-advancing schedules."""

from __future__ import annotations

import numpy as np

from checkmate.milp.assemble import Clock
from checkmate.milp.model import FloatArray, Program, Rows
from checkmate.milp.wide_columns import ONE
from checkmate.milp.wide_rows import FAMILIES, Frame
from checkmate.milp.wide_windows import add_window_rows


def assemble(
    frame: Frame, clock: Clock, *, with_windows: bool, deadline_s: float | None = None
) -> Program:
    """Return the program of ``frame``: minimise the time in ``clock``.

    ``with_windows``: with rows for the memory while near recomputes run. Raises `NotFoundError`
    when it is not written by ``deadline_s`` of the monotonic clock.
    """
    rows = Rows(deadline_s)
    for add_rows in FAMILIES.values():
        add_rows(frame, rows)
    columns = frame.columns
    n_cols = add_window_rows(frame, rows) if with_windows else columns.n_cols
    lower = np.zeros(n_cols)
    lower[ONE] = 1.0
    is_integer = np.zeros(n_cols, dtype=np.bool_)
    is_integer[[*columns.run.values(), *columns.state.values()]] = True
    return Program(
        cost=_find_cost(frame, n_cols) / clock.unit_ns,
        offset=frame.problem.costs.total_ns / clock.unit_ns,
        lower=lower,
        upper=np.ones(n_cols),
        is_integer=is_integer,
        row_lower=np.full(len(rows.upper), -np.inf),
        row_upper=rows.upper,
        starts=rows.starts,
        indices=rows.indices,
        values=rows.values,
    )


def _find_cost(frame: Frame, n_cols: int) -> FloatArray:
    time_ns, cost = frame.problem.costs.time_ns, np.zeros(n_cols)
    for (_, k), column in frame.columns.run.items():
        cost[column] = time_ns[k]
    for op, returns in frame.columns.returns.items():
        for one in returns:
            cost[one.column] = time_ns[op]
    return cost
