"""Two-phase rounding: the linear relaxation says what to retain, the rest follows.

Jain et al., "Checkmate", MLSys 2020, section 5. The relaxation of the paper's program is solved;
what it retains is rounded to yes or no, by thresholds and at random; then the fewest computes that
retain this are found, and the simulator says whether they fit. As in the paper, the relaxation is
given less than the budget where nothing that it leads to fits the whole of it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from checkmate.graph import OpId, TensorId
from checkmate.heuristics.given import order_given
from checkmate.heuristics.tables import make_tables
from checkmate.milp.assemble import make_clock, make_program
from checkmate.milp.frame import make_frame
from checkmate.milp.model import FloatArray
from checkmate.plan import Claim, SolverInfo
from checkmate.problem import Problem
from checkmate.search.bound import check_conceivable
from checkmate.search.claims import find_termination, make_failure, run_order
from checkmate.search.exact import SPACE, check_size
from checkmate.search.finding import Finding, Limits
from checkmate.solver.process import solve_in_worker
from checkmate.solver.result import SEED, THREADS, MilpResult, Settings

STRATEGY = "rounding"
SHARES = (1.0, 0.95, 0.9, 0.8, 0.7)
"""Parts of what the budget leaves beside resident tensors that the relaxation is given, in turn."""
_THRESHOLDS = tuple(step / 20 for step in range(1, 20))
_DRAWS = 20


def solve_by_rounding(problem: Problem, budget_nbytes: int, limits: Limits) -> Finding:
    """Return the fastest that fits of the orders that the rounded relaxations lead to.

    Its bound is that of the relaxation in the whole budget. Raises `NoneInSpaceError` when it is
    proved that no frontier-advancing order fits, `UnsuitableError` for a graph whose program is
    too large, `NotFoundError` or `InterruptError` when nothing fits or a limit came first.
    """
    check_conceivable(problem, budget_nbytes)
    check_size(problem)
    return _Search(problem, budget_nbytes, limits).run()


class _Search:
    """One search: the best order so far, the bound, and the time it began."""

    def __init__(self, problem: Problem, budget_nbytes: int, limits: Limits) -> None:
        self._began_s = time.monotonic()
        self._problem = problem
        self._budget_nbytes = budget_nbytes
        self._limits = limits
        self._clock = make_clock(problem)
        self._tables = make_tables(problem)
        self._bound_ns = problem.costs.total_ns
        self._best: tuple[int, tuple[OpId, ...]] | None = None

    def run(self) -> Finding:
        """Return the best of all shares of the budget for which there is time."""
        first = result = self._relax(SHARES[0])
        if math.isfinite(result.bound):
            self._bound_ns = max(self._bound_ns, self._clock.round_bound(result.bound))
        for share in SHARES[1:]:
            if result.status != "solved" or self._is_done():
                break
            result = self._relax(share)
        if self._best is None:
            # That less than the budget is not enough proves nothing.
            last = first if result.status == "infeasible" else result
            raise make_failure(self._problem, self._budget_nbytes, self._bound_ns, SPACE, last)
        return self._conclude(result)

    def _relax(self, share: float) -> MilpResult:
        """Solve the relaxation in ``share`` of the budget and try what it leads to."""
        resident_nbytes = self._problem.graph.resident_nbytes
        room_nbytes = int((self._budget_nbytes - resident_nbytes) * share)
        frame = make_frame(self._problem, resident_nbytes + room_nbytes)
        program = make_program(self._problem, frame, self._clock)
        relaxed = replace(program, is_integer=np.zeros(program.n_cols, dtype=np.bool_))
        result = solve_in_worker(relaxed, Settings(time_s=self._find_left()))
        if result.status == "solved" and result.values is not None:
            for retained in _round(frame.columns.retain, len(frame.graph.ops), result.values):
                if self._find_left() == 0.0:
                    break
                self._offer(order_given(self._tables, retained))
        return result

    def _offer(self, order: tuple[OpId, ...]) -> None:
        simulation = run_order(self._problem, order)
        fits = simulation.peak.nbytes <= self._budget_nbytes
        if fits and (self._best is None or simulation.time_ns < self._best[0]):
            self._best = (simulation.time_ns, order)

    def _is_done(self) -> bool:
        """Return whether the best is good enough, or there is no more time."""
        if self._find_left() == 0.0:
            return True
        if self._best is None:
            return False
        return self._best[0] - self._bound_ns <= self._limits.gap * self._bound_ns

    def _find_left(self) -> float | None:
        """Return the seconds that are left; None: no clock."""
        if self._limits.time_s is None:
            return None
        return max(0.0, self._limits.time_s - (time.monotonic() - self._began_s))

    def _conclude(self, result: MilpResult) -> Finding:
        assert self._best is not None
        time_ns, order = self._best
        interrupted = result.status == "interrupted"
        bound_ns = min(self._bound_ns, time_ns)
        termination = find_termination(time_ns, bound_ns, self._limits, interrupted=interrupted)
        info = SolverInfo("HiGHS", result.version, THREADS, SEED)
        return Finding(order, Claim(STRATEGY, SPACE, bound_ns, termination, info))


Retained = list[list[TensorId]]


def _round(
    columns: Mapping[tuple[int, int], int], n_stages: int, values: FloatArray
) -> Iterator[Retained]:
    """Yield what is retained into each stage, one rounding after the other.

    At random, a tensor has one threshold for all stages, so that it is retained into each with the
    probability that the relaxation says, and is not dropped and made again by chance.
    """
    for threshold in _THRESHOLDS:
        yield _cut(columns, n_stages, values, {}, threshold)
    tensors = sorted({e for _, e in columns})
    random = np.random.default_rng(SEED)
    for _ in range(_DRAWS):
        drawn = dict(zip(tensors, random.random(len(tensors)).tolist(), strict=True))
        yield _cut(columns, n_stages, values, drawn, 0.5)


def _cut(
    columns: Mapping[tuple[int, int], int], n_stages: int, values: FloatArray,
    thresholds: Mapping[int, float], other: float,
) -> Retained:  # fmt: skip
    """Return what is retained above its threshold, or above ``other``."""
    retained: Retained = [[] for _ in range(n_stages + 1)]
    for (t, e), column in columns.items():
        if values[column] > thresholds.get(e, other):
            retained[t].append(TensorId(e))
    return retained
