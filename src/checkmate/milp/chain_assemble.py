"""The program of a chain, whole."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from checkmate.milp.assemble import Clock
from checkmate.milp.chain_columns import ONE
from checkmate.milp.chain_frame import Frame
from checkmate.milp.chain_rows import FAMILIES, Family
from checkmate.milp.chain_windows import Window, add_need_rows, add_window_rows, make_windows
from checkmate.milp.model import FloatArray, Program, Rows


@dataclass(frozen=True, slots=True)
class Assembly:
    """A program and the windows that it has."""

    program: Program
    windows: tuple[Window, ...]


def assemble(
    frame: Frame,
    clock: Clock,
    stages: Iterable[int],
    families: Iterable[Family] = FAMILIES.values(),
    deadline_s: float | None = None,
) -> Assembly:
    """Return the program of ``frame`` with the memory rows of the recomputes of ``stages``.

    Raises `NotFoundError` when it is not written by ``deadline_s`` of the monotonic clock.
    """
    rows = Rows(deadline_s)
    for add_rows in families:
        add_rows(frame, rows)
    windows, n_cols = make_windows(frame, stages)
    for window in windows:
        add_need_rows(frame, window, rows)
        add_window_rows(frame, window, rows)
    lower = np.zeros(n_cols)
    lower[ONE] = 1.0
    upper = np.ones(n_cols)
    is_integer = np.zeros(n_cols, dtype=np.bool_)
    is_integer[list(frame.columns.run.values())] = True
    is_integer[[column for _, column in frame.columns.spans]] = True
    program = Program(
        cost=_find_cost(frame, n_cols) / clock.unit_ns,
        offset=frame.problem.costs.total_ns / clock.unit_ns,
        lower=lower,
        upper=upper,
        is_integer=is_integer,
        row_lower=np.full(len(rows.upper), -np.inf),
        row_upper=rows.upper,
        starts=rows.starts,
        indices=rows.indices,
        values=rows.values,
    )
    return Assembly(program, windows)


def _find_cost(frame: Frame, n_cols: int) -> FloatArray:
    time_ns = frame.problem.costs.time_ns
    cost = np.zeros(n_cols)
    for (_, k), column in frame.columns.run.items():
        cost[column] = time_ns[k]
    for k, returns in frame.columns.returns.items():
        for one in returns:
            cost[one.column] = time_ns[k]
    return cost
