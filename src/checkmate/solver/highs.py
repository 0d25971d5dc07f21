"""One solve in this process, of a program whole or of its rows as they are missed.

A linear program is solved without its long rows first; those that its solution breaks are added,
and it is solved again from there. Of the memory rows of a large graph a few in a hundred are ever
added. What each round leaves out only makes its bound lower, so the bound of every round counts.

"Infeasible" is believed when a second solve without presolve says it again.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import numpy as np

from checkmate.errors import SolverError
from checkmate.milp.dual_bound import find_dual_bound
from checkmate.milp.model import BoolArray, FloatArray, IntArray, Program, relax
from checkmate.solver.result import MilpResult, Settings
from checkmate.solver.session import Session, Watch

_LONG = 64
"""Coefficients above which a row waits until it is broken."""
_MANY = 100_000
"""Coefficients below which an integer program is solved with all rows: cuts are made from them."""
_MOST_ADDED = 20
"""Rows added in a round: neighbours mostly say the same."""
_APART = 4
"""How many rows apart those added in a round are at least."""
_TIGHT = 0.97
"""What is this close to the upper end of a row in a solution of the relaxation, or in the solution
to begin from, may break it in others: an integer program has the row from the start."""
_TOLERANCE = 1e-6
"""How far a row may be broken, as a part of its upper end and absolutely."""


@dataclass(frozen=True, slots=True)
class _Job:
    """What is to be solved, and how."""

    program: Program
    settings: Settings
    start: FloatArray | None
    watch: Watch
    ends_s: float
    """When to end, of the monotonic clock."""

    @property
    def target(self) -> float:
        """The bound that is good enough; infinite without one."""
        return math.inf if self.settings.target is None else self.settings.target

    def find_left(self) -> float | None:
        """Return the seconds that are left; None: no clock."""
        return None if math.isinf(self.ends_s) else max(0.0, self.ends_s - time.monotonic())


def solve_program(
    program: Program,
    settings: Settings,
    start: FloatArray | None = None,
    watch: Watch | None = None,
) -> MilpResult:
    """Return what HiGHS finds, beginning from the solution ``start`` when there is one.

    Raises `SolverError` when HiGHS fails or contradicts itself.
    """
    time_s = math.inf if settings.time_s is None else settings.time_s
    job = _Job(program, settings, start, watch or Watch(), time.monotonic() + time_s)
    first = _solve(job, "choose")
    if first is not None and first.status != "infeasible":
        return first
    second = _solve(job, "off")
    if second is None:
        raise SolverError("HiGHS calls a program infeasible and gives a solution of it")
    return second


def _solve(job: _Job, presolve: str) -> MilpResult | None:
    """Return the answer; None: HiGHS contradicts itself."""
    program = job.program
    waits = (np.diff(program.starts) > _LONG) & np.isneginf(program.row_lower)
    if not program.is_integer.any():
        return _relax(job, ~waits, presolve)
    if not waits.any() or len(program.values) < _MANY:
        return _run_with(job, np.ones_like(waits), presolve)
    present = ~waits
    relaxed = _relax(job, present, presolve)
    if relaxed is None or relaxed.status != "solved":
        return relaxed
    for values in (relaxed.values, job.start):
        if values is not None:
            present |= program.find_row_values(values) > _TIGHT * program.row_upper
    return _solve_by_rounds(job, present, relaxed.bound, presolve)


def _relax(job: _Job, present: BoolArray, presolve: str) -> MilpResult | None:
    """Return the answer to the relaxation; one that was not solved may have a bound too.

    The rows that it took are marked in ``present``.
    """
    program = job.program
    order: IntArray = np.flatnonzero(present).astype(np.int32)
    relaxed = relax(program)
    session = Session(relaxed.take_rows(present), job.settings, job.watch, presolve=presolve)
    bound = -math.inf
    while True:
        result = session.run(job.find_left())
        if result is None or result.status == "infeasible":
            return result
        bound = max(bound, _find_bound(program, order, session.find_duals()))
        if result.status != "solved" or result.values is None:
            return replace(result, values=None, objective=math.inf, bound=bound)
        if bound >= job.target:
            return replace(result, status="limit", values=None, objective=math.inf, bound=bound)
        missed = _choose_missed(program, present, result.values)
        if not len(missed):
            return replace(result, bound=min(bound, result.objective))
        present[missed] = True
        session.add_rows(relaxed.take_rows(_mark(missed, program.n_rows)))
        order = np.concatenate((order, missed))


def _solve_by_rounds(
    job: _Job, present: BoolArray, bound: float, presolve: str
) -> MilpResult | None:
    """Return the answer to a program, solved with the rows ``present`` and those it misses."""
    while True:
        result = _run_with(job, present, presolve)
        if result is None or result.status == "infeasible":
            return result
        bound = max(bound, result.bound)
        values = result.values
        missed = () if values is None else _choose_missed(job.program, present, values)
        if not len(missed):
            return replace(result, bound=min(bound, result.objective))
        if result.status == "interrupted" or job.find_left() == 0.0 or bound >= job.target:
            return replace(result, values=None, objective=math.inf, bound=bound)
        present[missed] = True


def _run_with(job: _Job, present: BoolArray, presolve: str) -> MilpResult | None:
    """Return the answer to the program of the rows ``present``."""
    session = Session(job.program.take_rows(present), job.settings, job.watch, presolve=presolve)
    if job.start is not None:
        session.begin_from(job.start)
    return session.run(job.find_left())


def _find_bound(program: Program, order: IntArray, duals: FloatArray) -> float:
    """Return what the ``duals`` of the rows in ``order`` prove."""
    if len(duals) != len(order):  # it was stopped before it had any
        return -math.inf
    all_duals = np.zeros(program.n_rows)
    all_duals[order] = duals
    return find_dual_bound(program, all_duals)


def _choose_missed(program: Program, present: BoolArray, values: FloatArray) -> IntArray:
    """Return rows, ascending, that ``values`` break most and that are not ``present``."""
    excess = program.find_row_values(values) - program.row_upper
    excess[present] = 0.0
    is_broken = excess > _TOLERANCE * np.maximum(1.0, np.abs(program.row_upper))
    chosen: list[int] = []
    for row in np.flatnonzero(is_broken)[np.argsort(-excess[is_broken], kind="stable")]:
        if all(abs(row - other) >= _APART for other in chosen):
            chosen.append(int(row))
        if len(chosen) == _MOST_ADDED:
            break
    return np.array(sorted(chosen), dtype=np.int32)


def _mark(rows: IntArray, n_rows: int) -> BoolArray:
    marks = np.zeros(n_rows, dtype=np.bool_)
    marks[rows] = True
    return marks
