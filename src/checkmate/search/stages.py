"""The search for chains of stages: fast at any size, with a bound.

Evicting runs find a first schedule and a relaxation the first bound. Where that is not close
enough, programs without deep recomputes improve the schedule, and programs that have every schedule
of the class, with ever more of its recomputes near, improve the bound. Memory rows of recomputes
are added only for the stages in which a schedule that a program led to was above the budget.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from checkmate.errors import InterruptError, NoneInSpaceError, NotFoundError, SolverError
from checkmate.graph import OpId
from checkmate.heuristics.staged import order_in_stages
from checkmate.milp.assemble import make_clock
from checkmate.milp.chain import Chain, arrange
from checkmate.milp.chain_assemble import Assembly, assemble
from checkmate.milp.chain_encode import decode, encode, join_windows
from checkmate.milp.chain_frame import Frame, make_bounding_frame, make_limiting_frame
from checkmate.milp.model import FloatArray, Program
from checkmate.plan import Claim, Space
from checkmate.problem import Problem
from checkmate.search.bound import check_conceivable
from checkmate.search.claims import find_termination, is_close, make_failure, run_order
from checkmate.search.finding import Finding, Limits
from checkmate.search.incumbent import Incumbent
from checkmate.solver.process import describe_solver, solve_in_worker
from checkmate.solver.result import MilpResult, Settings

STRATEGY = "stages"
SPACE: Space = "chain-of-stages"

Order = tuple[OpId, ...]
MakeFrame = Callable[[Chain, Problem, int, int | None], Frame]
Report = Callable[[Order | None, int], None]
"""Called with the best chain of stages so far, if there is one, and the bound."""

_DEPTH = 4
_PROGRAMS = (
    (make_limiting_frame, _DEPTH),
    (make_bounding_frame, _DEPTH),
    (make_bounding_frame, 16),
    (make_limiting_frame, 8),
    (make_bounding_frame, None),
)
"""In turn, until the gap is reached; limiting ones lead to schedules, bounding ones to bounds."""
_MOST_NEAR = 60_000
"""Programs with more near recomputes take too long to be worth it."""
_NODES = 200
"""Branch-and-bound nodes of each program but the last; it has a quarter of the time left, too."""
_GUIDANCE = 3.0
"""What the program retains weighs e to the power of this more in an evicting run, or less."""


def solve_stages(
    problem: Problem,
    budget_nbytes: int,
    limits: Limits,
    start: Sequence[OpId] | None = None,
    report: Report = lambda order, bound_ns: None,
) -> Finding:
    """Return the best chain of stages found that fits in ``budget_nbytes``, with a bound.

    ``start`` is an order to begin from; it is returned when it is faster than all that was found,
    without that bound if it is no chain of stages. ``report`` is told of what is found and proved
    meanwhile. Raises `NoneInSpaceError` when it is proved
    that no chain of stages fits, `NotFoundError` or `InterruptError` when the search ended before
    it knew or there are no stages, `SolverError` when HiGHS fails.
    """
    check_conceivable(problem, budget_nbytes)
    in_order = tuple(OpId(i) for i in range(len(problem.graph.ops)))
    if run_order(problem, in_order).peak.nbytes <= budget_nbytes:
        claim = Claim(STRATEGY, "all-schedules", problem.costs.total_ns, "optimal")
        return Finding(in_order, claim)
    chain = arrange(problem.graph)
    if chain is None:
        raise NotFoundError(
            f"graph {problem.graph.name!r} has no backward ops, so that it has no stages",
            hint="choose another --strategy",
        )
    known = None if start is None else tuple(start)
    if known is not None and run_order(problem, known).peak.nbytes > budget_nbytes:
        known = None
    search = _Search(chain, problem, budget_nbytes, limits)
    search.report = report
    return search.run(known)


class _Search:
    """One search: the best so far, the bound so far, and the time it began."""

    def __init__(self, chain: Chain, problem: Problem, budget_nbytes: int, limits: Limits) -> None:
        self.report: Report = lambda order, bound_ns: None
        self._began_s = time.monotonic()
        self._chain = chain
        self._problem = problem
        self._budget_nbytes = budget_nbytes
        self._limits = limits
        self._clock = make_clock(problem)
        self._best = Incumbent(chain, problem, budget_nbytes)
        self._bound_ns = problem.costs.total_ns
        self._goal_ns: int | None = None
        self._result: MilpResult | None = None

    def run(self, known: Order | None) -> Finding:
        """Return the best found, or the order ``known``, which fits, when that is better."""
        if known is not None:
            self._goal_ns = run_order(self._problem, known).time_ns
            self._offer(known)
        try:
            self._search()
        except NoneInSpaceError as error:
            if self._best.windows is not None:
                raise SolverError(f"HiGHS proved that {error.message}, but one does") from error
            if known is None:
                raise
        return self._conclude(known)

    def _search(self) -> None:
        self._run_evicting(())
        self._relax()
        for make_frame, depth in _PROGRAMS:
            if not self._is_done():
                self._solve(make_frame, depth)

    def _relax(self) -> None:
        """Learn from the relaxation."""
        frame = make_bounding_frame(self._chain, self._problem, self._budget_nbytes, _DEPTH)
        program = assemble(frame, self._clock, ()).program
        relaxed = replace(program, is_integer=np.zeros(program.n_cols, dtype=np.bool_))
        result = self._ask(relaxed, None)
        self._learn(result)
        if result.values is not None and not self._is_done():
            self._guide(frame, result.values)

    def _solve(self, make_frame: MakeFrame, depth: int | None) -> None:
        """Solve one program, again and again while rows are missing."""
        frame = make_frame(self._chain, self._problem, self._budget_nbytes, depth)
        is_last = depth is None
        stages: set[int] = set()
        while not self._is_done() and len(frame.columns.run) <= _MOST_NEAR:
            assembly = assemble(frame, self._clock, sorted(stages))
            result = self._ask(assembly.program, self._encode(frame, assembly), is_last=is_last)
            if make_frame is make_bounding_frame:
                self._learn(result)
            violated = self._decode(frame, result)
            if violated <= stages:
                return
            stages |= violated

    def _decode(self, frame: Frame, result: MilpResult) -> set[int]:
        """Offer the schedule of ``result``; return the stages in which it does not fit."""
        if result.values is None:
            return set()
        order = join_windows(self._chain, decode(frame, result.values))
        self._offer(order)
        if frame.hops.deep.any() and not self._is_done():
            self._guide(frame, result.values)
        return self._best.find_violated(order)

    def _encode(self, frame: Frame, assembly: Assembly) -> FloatArray | None:
        """Return the best so far as a solution; None: there is none, or it is not one."""
        windows = self._best.windows
        if windows is None or not frame.hops.allow(windows):
            return None
        return encode(frame, assembly.windows, assembly.program.n_cols, windows)

    def _guide(self, frame: Frame, values: FloatArray) -> None:
        """Run again with what ``values`` retain when it was first made weighing more."""
        weights = [1.0] * len(self._problem.graph.tensors)
        for e, tensor in enumerate(self._problem.graph.tensors):
            if tensor.producer is not None:
                column = int(frame.columns.state[self._chain.births[tensor.producer], e])
                retained = values[column] if column >= 0 else 0.5
                weights[e] = math.exp(_GUIDANCE * (2 * retained - 1))
        self._run_evicting(weights)

    def _run_evicting(self, weights: Sequence[float]) -> None:
        graph = self._problem.graph
        ops = tuple(
            replace(op, recomputable=op.recomputable and is_forward)
            for op, is_forward in zip(graph.ops, self._chain.is_forward, strict=True)
        )
        # Views that nothing reads are still there; one that may run only once would be none.
        tensors = tuple(replace(tensor, source=None) for tensor in graph.tensors)
        pinned = Problem(replace(graph, ops=ops, tensors=tensors), self._problem.costs)
        n_forward = self._chain.n_forward
        for order in order_in_stages(pinned, self._budget_nbytes, n_forward, weights):
            self._offer(order)

    def _offer(self, order: Order) -> None:
        before = self._best.order
        self._best.offer(order)
        if self._best.order is not before:
            self._report()

    def _report(self) -> None:
        self.report(None if self._best.windows is None else self._best.order, self._bound_ns)

    def _is_done(self) -> bool:
        """Return whether to end: good enough, no more to gain, or no more time."""
        if self._result is not None and self._result.status == "interrupted":
            return True
        if self._find_left() == 0.0:
            return True
        if self._goal_ns is not None and is_close(self._goal_ns, self._bound_ns, self._limits):
            return True
        if self._best.windows is None:
            return False
        return is_close(self._best.time_ns, self._bound_ns, self._limits)

    def _find_left(self) -> float | None:
        """Return the seconds that are left; None: no clock."""
        if self._limits.time_s is None:
            return None
        return max(0.0, self._limits.time_s - (time.monotonic() - self._began_s))

    def _ask(
        self, program: Program, start: FloatArray | None, *, is_last: bool = False
    ) -> MilpResult:
        """Return the solver's answer to half the gap, since the schedule's own time is more."""
        gap, time_s, nodes = self._limits.gap / 2, self._find_left(), self._limits.nodes
        if not is_last:
            time_s = None if time_s is None else time_s / 4
            nodes = min(_NODES, nodes or _NODES)
        self._result = solve_in_worker(program, Settings(gap / (1 + gap), time_s, nodes), start)
        return self._result

    def _learn(self, result: MilpResult) -> None:
        """Raise the bound to that of a bounding program; raise when there are no schedules."""
        if result.status == "infeasible":
            raise self._make_failure(result)
        if math.isfinite(result.bound):
            self._bound_ns = max(self._bound_ns, self._clock.round_bound(result.bound))
            self._report()

    def _make_failure(self, result: MilpResult) -> InterruptError | NotFoundError:
        return make_failure(self._problem, self._budget_nbytes, self._bound_ns, SPACE, result)

    def _conclude(self, known: Order | None) -> Finding:
        """Return the best, or ``known`` with the bound that holds for it."""
        result, best = self._result, self._best
        assert result is not None
        if known is not None and (best.windows is None or best.time_ns > (self._goal_ns or 0)):
            order, time_ns = known, self._goal_ns or 0
            space: Space = "all-schedules"
            bound_ns = self._problem.costs.total_ns
        elif best.windows is not None:
            order, time_ns, space = best.order, best.time_ns, SPACE
            bound_ns = min(self._bound_ns, time_ns)
        else:
            raise self._make_failure(result)
        interrupted = result.status == "interrupted"
        termination = find_termination(time_ns, bound_ns, self._limits, interrupted=interrupted)
        return Finding(order, Claim(STRATEGY, space, bound_ns, termination, describe_solver()))
