"""A bound for all frontier-advancing schedules, of graphs too large for the paper's program.

Programs that every such schedule is a point of, each larger and tighter than the one before; the
first are relaxed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from checkmate.errors import NotFoundError
from checkmate.milp.assemble import make_clock
from checkmate.milp.model import Program, relax
from checkmate.milp.wide_assemble import assemble
from checkmate.milp.wide_light import set_small_aside
from checkmate.milp.wide_rows import make_frame
from checkmate.milp.wide_windows import count_window_coefficients
from checkmate.plan import Space
from checkmate.problem import Problem
from checkmate.search.claims import make_failure
from checkmate.search.finding import Limits
from checkmate.solver.process import solve_in_worker
from checkmate.solver.result import MilpResult, Settings

SPACE: Space = "frontier-advancing"

Learn = Callable[[int], bool]
"""Called with each better bound; returns whether to go on."""

_MOST_RUNS = 60_000
"""Programs with more near recomputes take too long to be worth it."""
_MOST_WINDOW_COEFFICIENTS = 10**6
_LEAST_OP_S = 5e-4
"""Seconds per op below which not even the columns of a program are numbered."""
_NODES = 200
"""Branch-and-bound nodes of each program."""
_SHARE = 0.4
"""Of the time that is left a program with branch-and-bound has this, but for the last one."""


@dataclass(frozen=True, slots=True)
class _Step:
    """One program: how deep its recomputes go, and what it has."""

    depth: int
    is_relaxed: bool
    with_windows: bool = False


_STEPS = (
    _Step(1, is_relaxed=True),
    _Step(2, is_relaxed=True),
    _Step(2, is_relaxed=False),
    _Step(4, is_relaxed=True),
    _Step(8, is_relaxed=True),
    _Step(4, is_relaxed=False),
    _Step(8, is_relaxed=False),
    _Step(4, is_relaxed=False, with_windows=True),
)


def bound_frontier(problem: Problem, budget_nbytes: int, limits: Limits, learn: Learn) -> None:
    """Tell ``learn`` what no frontier-advancing schedule of the folded ``problem`` is below.

    Raises `NoneInSpaceError` when it is proved that none fits, `InterruptError` when the user
    wants no more, `SolverError` when HiGHS fails.
    """
    ends_s = time.monotonic() + (math.inf if limits.time_s is None else limits.time_s)
    clock, bound_ns = make_clock(problem), problem.costs.total_ns
    light = set_small_aside(problem, budget_nbytes)
    too_deep = {False: math.inf, True: math.inf}
    done: set[tuple[object, ...]] = set()
    for step in _STEPS:
        if step.depth >= too_deep[step.with_windows]:
            continue
        program = _make_program(light, budget_nbytes, step, ends_s)
        if program is None:
            too_deep[step.with_windows] = step.depth
            continue
        # Of a small graph, programs of two depths may be one.
        kind = step.is_relaxed, step.with_windows, program.n_cols, program.n_rows
        if kind in done:
            continue
        done.add(kind)
        result = solve_in_worker(program, _make_settings(step, limits, ends_s))
        if math.isfinite(result.bound):
            bound_ns = max(bound_ns, clock.round_bound(result.bound))
        if result.status in ("infeasible", "interrupted"):
            raise make_failure(problem, budget_nbytes, bound_ns, SPACE, result)
        if not learn(bound_ns) or _has_no_hope(result):
            return


def _make_settings(step: _Step, limits: Limits, ends_s: float) -> Settings:
    """Return when to end a program; one that is not relaxed leaves time for those after it."""
    nodes, left_s = min(_NODES, limits.nodes or _NODES), max(0.0, ends_s - time.monotonic())
    if math.isinf(left_s):
        return Settings(limits.gap / 4, None, nodes)
    share = 1.0 if step.is_relaxed or step is _STEPS[-1] else _SHARE
    return Settings(limits.gap / 4, share * left_s, nodes)


def _has_no_hope(result: MilpResult) -> bool:
    """Return whether even the relaxation was too large, so that larger programs are as well."""
    return result.status == "limit" and not math.isfinite(result.bound)


def _make_program(
    problem: Problem, budget_nbytes: int, step: _Step, ends_s: float
) -> Program | None:
    """Return the program of a step; None: it would be too large, or take too long to write."""
    if ends_s - time.monotonic() < _LEAST_OP_S * len(problem.graph.ops):
        return None
    frame = make_frame(problem, budget_nbytes, step.depth)
    if len(frame.columns.run) > _MOST_RUNS:
        return None
    if step.with_windows and count_window_coefficients(frame) > _MOST_WINDOW_COEFFICIENTS:
        return None
    clock = make_clock(problem)
    try:
        program = assemble(frame, clock, with_windows=step.with_windows, deadline_s=ends_s)
    except NotFoundError:  # out of time
        return None
    if step.is_relaxed:
        return relax(program)
    return program
