"""The paper's search: the best frontier-advancing schedule, by mixed-integer programming."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from checkmate.errors import UnsuitableError
from checkmate.graph import OpId
from checkmate.milp.assemble import make_clock, make_program
from checkmate.milp.covers import Cover, add_cover_rows, find_covers
from checkmate.milp.encode import decode, encode, is_frontier_advancing
from checkmate.milp.frame import make_frame
from checkmate.milp.model import FloatArray, Program
from checkmate.milp.reach import count_coefficients
from checkmate.milp.rows import FAMILIES, Family
from checkmate.plan import Claim, Space
from checkmate.problem import Problem
from checkmate.search.bound import check_conceivable
from checkmate.search.claims import find_termination, make_failure, run_order
from checkmate.search.finding import Finding, Limits
from checkmate.solver.process import describe_solver, solve_in_worker
from checkmate.solver.result import MilpResult, Settings

STRATEGY = "exact"
SPACE: Space = "frontier-advancing"
MAX_COEFFICIENTS = 3 * 10**7
"""A program with more would fill memory before it is solved."""

Order = tuple[OpId, ...]
Learn = Callable[[int], None]
"""Called with the bound so far."""


def solve_exact(
    problem: Problem,
    budget_nbytes: int,
    limits: Limits,
    start: Sequence[OpId] | None = None,
    learn: Learn = lambda bound_ns: None,
) -> Finding:
    """Return the best frontier-advancing order that fits in ``budget_nbytes``, or a good one.

    ``start`` is an order to begin from; when nothing better is found, it is returned. ``learn`` is
    told what is proved meanwhile. Raises
    `NoneInSpaceError` when it is proved that no such order fits, `NotFoundError` or
    `InterruptError` when the search ended before it knew, `SolverError` when HiGHS fails.
    """
    check_conceivable(problem, budget_nbytes)
    in_order = tuple(OpId(i) for i in range(len(problem.graph.ops)))
    if run_order(problem, in_order).peak.nbytes <= budget_nbytes:
        claim = Claim(STRATEGY, "all-schedules", problem.costs.total_ns, "optimal")
        return Finding(in_order, claim)
    known = None if start is None else tuple(start)
    if known is not None and run_order(problem, known).peak.nbytes > budget_nbytes:
        known = None
    search = _Search(problem, budget_nbytes, limits)
    search.learn = learn
    return search.run(known)


def find_lp_bound(problem: Problem, budget_nbytes: int, limits: Limits) -> int:
    """Return a time in ns that no frontier-advancing order that fits is below, by relaxation.

    Raises `NoneInSpaceError` when it is proved that no such order fits, `NotFoundError` when a
    limit ended the search before it knew.
    """
    check_conceivable(problem, budget_nbytes)
    return _Search(problem, budget_nbytes, limits).relax()


class _Search:
    """One search: the program, what it has learnt so far, and the time it began."""

    def __init__(self, problem: Problem, budget_nbytes: int, limits: Limits) -> None:
        self.learn: Learn = lambda bound_ns: None
        self._began_s = time.monotonic()
        self._problem = problem
        self._budget_nbytes = budget_nbytes
        self._limits = limits
        check_size(problem)
        self._frame = make_frame(problem, budget_nbytes)
        self._clock = make_clock(problem)
        self._covers: tuple[Cover, ...] = ()
        self._bound_ns = problem.costs.total_ns

    def run(self, known: Order | None) -> Finding:
        """Return the best order found, beginning from the order ``known`` that fits."""
        graph, start = self._problem.graph, None
        if known is not None and is_frontier_advancing(graph, known):
            start = encode(graph, self._frame.columns, known)
        result, found = self._solve(start)
        orders = [order for order in (found, known) if order is not None]
        if not orders:
            raise make_failure(self._problem, self._budget_nbytes, self._bound_ns, SPACE, result)
        best = min(orders, key=lambda order: run_order(self._problem, order).time_ns)
        return Finding(best, self._make_claim(best, result))

    def relax(self) -> int:
        """Return the bound of the linear relaxation."""
        time_s = self._limits.time_s
        program = self._make_program(None if time_s is None else self._began_s + time_s)
        relaxed = replace(program, is_integer=np.zeros(program.n_cols, dtype=np.bool_))
        result = self._ask(relaxed, None)
        if result.status != "solved":
            raise make_failure(self._problem, self._budget_nbytes, self._bound_ns, SPACE, result)
        return self._bound_ns

    def _solve(self, start: FloatArray | None) -> tuple[MilpResult, Order | None]:
        """Return the solver's last answer, and its order if that fits.

        An order above the budget, which rounding let through, is forbidden and the next is sought.
        """
        while True:
            result = self._ask(self._make_program(), start)
            if result.values is None:
                return result, None
            order = decode(self._frame.columns, result.values)
            covers = find_covers(self._problem, self._frame, self._budget_nbytes, order)
            if not covers:
                return result, order
            self._covers += covers
            if result.status != "solved":
                return result, None

    def _make_program(self, deadline_s: float | None = None) -> Program:
        forbid = partial(add_cover_rows, covers=self._covers)
        families: tuple[Family, ...] = (*FAMILIES.values(), forbid)
        return make_program(self._problem, self._frame, self._clock, families, deadline_s)

    def _ask(self, program: Program, start: FloatArray | None) -> MilpResult:
        """Return the solver's answer, having learnt from its bound."""
        gap, time_s = self._limits.gap, self._limits.time_s
        if time_s is not None:
            time_s = max(0.0, time_s - (time.monotonic() - self._began_s))
        # HiGHS divides by the objective, we by the bound.
        settings = Settings(gap / (1 + gap), time_s, self._limits.nodes)
        result = solve_in_worker(program, settings, start)
        if math.isfinite(result.bound):
            self._bound_ns = max(self._bound_ns, self._clock.round_bound(result.bound))
            self.learn(self._bound_ns)
        return result

    def _make_claim(self, order: Order, result: MilpResult) -> Claim:
        time_ns = run_order(self._problem, order).time_ns
        space: Space = SPACE
        bound_ns = min(self._bound_ns, time_ns)
        if not is_frontier_advancing(self._problem.graph, order):
            space, bound_ns = "all-schedules", self._problem.costs.total_ns
        termination = find_termination(
            time_ns, bound_ns, self._limits, interrupted=result.status == "interrupted"
        )
        return Claim(STRATEGY, space, bound_ns, termination, describe_solver())


def check_size(problem: Problem) -> None:
    """Raise `UnsuitableError` when the program of ``problem`` is too large to be solved."""
    n_coefficients = count_coefficients(problem.graph)
    if n_coefficients > MAX_COEFFICIENTS:
        raise UnsuitableError(
            f"graph {problem.graph.name!r} is too large for the paper's program:"
            f" {n_coefficients} coefficients, at most {MAX_COEFFICIENTS}",
            hint="choose another --strategy",
        )
