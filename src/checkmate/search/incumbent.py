"""The best chain of stages so far, and what is wrong with those that do not fit."""

from __future__ import annotations

from collections.abc import Sequence

from checkmate.graph import OpId
from checkmate.heuristics.pruning import prune
from checkmate.heuristics.tables import make_tables
from checkmate.liveness import insert_frees
from checkmate.milp.chain import Chain, split_windows
from checkmate.problem import Problem
from checkmate.schedule import Compute
from checkmate.search.claims import run_order
from checkmate.simulate import simulate


class Incumbent:
    """Orders are offered to it; it keeps the fastest that fits and is in the class."""

    def __init__(self, chain: Chain, problem: Problem, budget_nbytes: int) -> None:
        self._chain = chain
        self._problem = problem
        self._budget_nbytes = budget_nbytes
        self._tables = make_tables(problem)
        self.windows: list[list[OpId]] | None = None
        """What the order recomputes per stage; None: nothing was kept yet."""
        self.order: tuple[OpId, ...] = ()
        self.time_ns = 0

    def offer(self, order: Sequence[OpId]) -> None:
        """Keep ``order``, without recomputes that memory makes needless, if it is the best."""
        if run_order(self._problem, order).peak.nbytes > self._budget_nbytes:
            return
        pruned = prune(self._tables, order, self._budget_nbytes)
        windows = split_windows(self._chain, pruned)
        time_ns = run_order(self._problem, pruned).time_ns
        if windows is not None and (self.windows is None or time_ns < self.time_ns):
            self.windows, self.order, self.time_ns = windows, pruned, time_ns

    def find_violated(self, order: Sequence[OpId]) -> set[int]:
        """Return the stages of ``order``, of the class, whose recomputes exceed the budget."""
        schedule = insert_frees(self._problem.graph, order)
        used_nbytes = simulate(self._problem, schedule).used_nbytes
        violated: set[int] = set()
        ran: set[OpId] = set()
        stage = 0
        for step, nbytes in zip(schedule.instructions, used_nbytes, strict=True):
            if not isinstance(step, Compute):
                continue
            if step.op in ran and nbytes > self._budget_nbytes:
                violated.add(stage)
            ran.add(step.op)
            stage = max(stage, self._chain.births[step.op])
        return violated
