"""Small programs that improve the best order: each chooses anew among a few of its computes.

What is not reopened stays as it is, so that a program of some hundred columns knows all of memory.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from checkmate.errors import InterruptError, SolverError
from checkmate.graph import OpId
from checkmate.heuristics.editing import find_keys
from checkmate.heuristics.reopening import Reopener
from checkmate.heuristics.tables import make_tables
from checkmate.milp.assemble import make_clock
from checkmate.milp.pool import Pool
from checkmate.milp.pool_assemble import assemble_choice, decode_choice, encode_choice
from checkmate.search.standing import Standing
from checkmate.solver.process import solve_in_worker
from checkmate.solver.result import MilpResult, Settings

STRATEGY = "anneal"
_FIRST, _LEAST, _MOST = 30, 8, 120
"""Ops that a program reopens: fewer after one that was not solved, more after one that was."""
_GROWTH, _SHRINKAGE = 1.05, 0.7
_NODES = 50
_PROGRAM_S = 8.0
"""The most time for one program, where there is a clock."""
_GAP = 1e-4
_MOST_FAILURES = 2
"""In a row."""


class Reopening:
    """Programs one after the other, each from the best order so far."""

    def __init__(self, standing: Standing, is_over: Callable[[], bool]) -> None:
        self._standing = standing
        self._tables = make_tables(standing.problem)
        rng = random.Random(0)  # noqa: S311 - no secret depends on it
        self._reopener = Reopener(self._tables, standing.budget_nbytes, rng)
        self._clock = make_clock(standing.problem)
        self._size = float(_FIRST)
        self._is_over = is_over
        self._n_failures = 0
        self.is_exhausted = False
        """Whether a program had all there is, and found nothing better."""

    def improve(self, n_programs: int) -> None:
        """Solve so many programs, as long as it is not over.

        Raises `InterruptError` when the user wants no more, `SolverError` when HiGHS fails.
        """
        for _ in range(n_programs):
            keys = self._find_keys()
            if keys is None or self.is_exhausted or self._is_over():
                return
            result = self._try(keys)
            if result is not None and result.status == "interrupted":
                raise InterruptError("interrupted")
            is_easy = result is not None and result.status != "limit"
            factor = _GROWTH if is_easy else _SHRINKAGE
            self._size = min(max(self._size * factor, _LEAST), _MOST)

    def _find_keys(self) -> tuple[int, ...] | None:
        """Return the keys of the best order; None: there is none, or it has none."""
        best = self._standing.best
        return None if best is None else find_keys(self._tables.n_ops, best.order)

    def _try(self, keys: tuple[int, ...]) -> MilpResult | None:
        """Solve one program; None: HiGHS failed, which it may do a few times in a row."""
        try:
            result = self._solve(keys)
        except SolverError:
            self._n_failures += 1
            if self._n_failures > _MOST_FAILURES:
                raise
            return None
        self._n_failures = 0
        return result

    def _solve(self, keys: tuple[int, ...]) -> MilpResult:
        """Solve one program, and offer what it leads to."""
        standing, reopened = self._standing, self._reopener.reopen(keys, round(self._size))
        pool = Pool(standing.problem, reopened.keys, reopened.optional)
        before = standing.best
        choice, program = assemble_choice(pool, standing.budget_nbytes, self._clock)
        ran = frozenset(keys)
        start = encode_choice(choice, {key: key in ran for key in reopened.optional})
        left_s = standing.limits.time_s
        time_s = None if left_s is None else min(_PROGRAM_S, left_s)
        nodes = min(_NODES, standing.limits.nodes or _NODES)
        result = solve_in_worker(program, Settings(_GAP, time_s, nodes), start)
        if result.values is not None:
            chosen = decode_choice(pool, choice, result.values)
            standing.offer([OpId(key % self._tables.n_ops) for key in chosen], STRATEGY)
        had_all = result.status == "solved" and self._reopener.has_all(reopened)
        self.is_exhausted = had_all and standing.best is before
        return result
