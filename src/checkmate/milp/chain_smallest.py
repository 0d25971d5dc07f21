"""The program of a chain with the memory it needs in place of the time it takes.

The budget of the frame is a floor: a last column says how much more than it is used, and is what
is minimised. Where the frame has every schedule of the class, its least value bounds them all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from checkmate.milp.chain_assemble import Assembly
from checkmate.milp.chain_columns import ONE
from checkmate.milp.chain_frame import Frame
from checkmate.milp.chain_rows import FAMILIES
from checkmate.milp.chain_windows import add_need_rows, add_window_rows, make_windows
from checkmate.milp.model import BoolArray, Program, Rows

_SLACK = 1e-3
"""How far a bound may be above the truth, in units."""


def assemble_smallest(frame: Frame, stages: Iterable[int]) -> Assembly:
    """Return the program of the least memory, with the rows of the recomputes of ``stages``."""
    rows = Rows()
    limited: list[range] = []
    for name, add_rows in FAMILIES.items():
        first = rows.count
        add_rows(frame, rows)
        if name == "memory":
            limited.append(range(first, rows.count))
    windows, more = make_windows(frame, stages)
    for window in windows:
        add_need_rows(frame, window, rows)
        first = rows.count
        add_window_rows(frame, window, rows)
        limited.append(range(first, rows.count))
    is_limited = np.zeros(rows.count, dtype=np.bool_)
    for part in limited:
        is_limited[part.start : part.stop] = True
    return Assembly(_make_program(frame, rows, is_limited, more), windows)


def find_bound_nbytes(frame: Frame, objective: float) -> int:
    """Return a budget below which nothing fits when ``objective`` is a bound of the program."""
    units = math.ceil(objective / frame.scale.power * (1 - 1e-9) - _SLACK)
    return frame.budget_nbytes + (units - 1) * frame.scale.unit_nbytes + 1 if units > 0 else 0


def _make_program(frame: Frame, rows: Rows, is_limited: BoolArray, more: int) -> Program:
    """Return the program in which the column ``more`` relieves the rows that are limited."""
    n_cols = more + 1
    cost, lower, upper = np.zeros(n_cols), np.zeros(n_cols), np.ones(n_cols)
    cost[more], lower[ONE], upper[more] = 1.0, 1.0, np.inf
    is_integer = np.zeros(n_cols, dtype=np.bool_)
    is_integer[list(frame.columns.run.values())] = True
    is_integer[[column for _, column in frame.columns.spans]] = True
    ends = rows.starts[1:][is_limited]
    added = np.concatenate(([0], np.cumsum(is_limited)))
    return Program(
        cost=cost,
        offset=0.0,
        lower=lower,
        upper=upper,
        is_integer=is_integer,
        row_lower=np.full(rows.count, -np.inf),
        row_upper=rows.upper,
        starts=(rows.starts + added).astype(np.int32),
        indices=np.insert(rows.indices, ends, more).astype(np.int32),
        values=np.insert(rows.values, ends, -1.0),
    )
