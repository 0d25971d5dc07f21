"""One search among the chains of stages of a graph, which may go on where it was left.

Evicting runs find a first schedule and a relaxation the first bound, programs without deep
recomputes better schedules, and programs that have every schedule of the class better bounds;
`docs/chain-of-stages.md` says which, in what order.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence

from checkmate.errors import InterruptError, NoneInSpaceError, NotFoundError, SolverError
from checkmate.graph import OpId
from checkmate.milp.assemble import make_clock
from checkmate.milp.chain import Chain
from checkmate.milp.chain_assemble import Assembly, assemble
from checkmate.milp.chain_encode import decode, encode, join_windows
from checkmate.milp.chain_frame import (
    Frame,
    make_bounding_frame,
    make_chosen_frame,
    make_limiting_frame,
)  # fmt: skip
from checkmate.milp.chain_hops import has_few_near
from checkmate.milp.model import FloatArray, Program, relax
from checkmate.plan import Claim, Space
from checkmate.problem import Problem
from checkmate.search.chain_drafts import choose, draft, find_used, join_stages, weigh
from checkmate.search.chain_steps import (
    FIRST_DEPTH,
    MOST_NEAR,
    MOST_NODES,
    MOST_WHOLE,
    STEPS,
    Step,
)  # fmt: skip
from checkmate.search.claims import find_termination, is_close, make_failure, run_order
from checkmate.search.finding import Finding, Limits
from checkmate.search.incumbent import Incumbent
from checkmate.solver.process import describe_solver, solve_in_worker
from checkmate.solver.result import MilpResult, Settings, Status

STRATEGY = "stages"
SPACE: Space = "chain-of-stages"

Order = tuple[OpId, ...]
Report = Callable[[Order | None, int], None]
"""Called with the best chain of stages so far, if there is one, and the bound."""

_GAP_SHARE = 100
"""Programs for schedules are solved to this part of the gap."""
_SLACK = 0.02
"""Units of the objective that a bound loses when it is rounded to a time, and more."""


class ChainSearch:
    """The best so far, the bound so far, and what the relaxation said."""

    def __init__(self, chain: Chain, problem: Problem, budget_nbytes: int) -> None:
        self._chain = chain
        self._problem = problem
        self._budget_nbytes = budget_nbytes
        self._clock = make_clock(problem)
        self._best = Incumbent(chain, problem, budget_nbytes)
        self._bound_ns = problem.costs.total_ns
        self._goal_ns: int | None = None
        self._result: MilpResult | None = None
        self._first: Frame | None = None
        self._relaxed: FloatArray | None = None
        self._write_s = 0.0
        self._chosen: frozenset[OpId] = frozenset()
        self._begin(Limits(), lambda order, bound_ns: None)

    def relax(self, limits: Limits, report: Report) -> None:
        """Find first schedules and the first bound, which `run` then begins from.

        ``report`` is told of what is found and proved. Raises as `run` does.
        """
        self._begin(limits, report)
        self._relax(1.0)
        if self._result is not None and self._result.status == "interrupted":
            raise InterruptError("interrupted")

    def run(self, limits: Limits, known: Order | None, report: Report) -> Finding:
        """Return the best found, or the order ``known``, which fits, when that is better.

        Raises `NoneInSpaceError` when it is proved that no chain of stages fits, `NotFoundError` or
        `InterruptError` when the search ended before it knew, `SolverError` when HiGHS fails.
        """
        self._begin(limits, report)
        if known is not None:
            self._goal_ns = run_order(self._problem, known).time_ns
            self._offer(known)
        try:
            self._search()
        except NoneInSpaceError:
            if known is None:
                raise
        return self._conclude(known)

    def _begin(self, limits: Limits, report: Report) -> None:
        self._limits, self._report_to = limits, report
        time_s = math.inf if limits.time_s is None else limits.time_s
        self._ends_s = time.monotonic() + time_s

    def _search(self) -> None:
        if self._first is None:
            self._relax(0.25)
        if self._first is not None and self._relaxed is not None and not self._is_done():
            self._run_evicting(weigh(self._first, self._relaxed))
        for step in STEPS:
            if not self._is_done() and self._suits(step):
                self._solve(step)
                if step.aim == "both":
                    return

    def _relax(self, share: float) -> None:
        """Learn from the relaxation, solved in a ``share`` of the time that is left."""
        self._run_evicting(())
        began_s = time.monotonic()
        self._first = self._make_bounding(FIRST_DEPTH)
        assembly = self._assemble(self._first, ())
        if assembly is None:
            return
        self._write_s = (time.monotonic() - began_s) / max(1, len(self._first.columns.run))
        result = self._ask(relax(assembly.program), None, Settings(time_s=self._find_share(share)))
        self._learn(result)
        self._relaxed = result.values

    def _solve(self, step: Step) -> None:
        """Solve the programs of ``step``."""
        if step.aim != "schedule":
            self._solve_frame(step, self._make_bounding(step.depth))
            return
        for frame in self._choose(step):
            self._solve_frame(step, frame)

    def _solve_frame(self, step: Step, frame: Frame) -> None:
        """Solve one program, again and again while rows are missing."""
        stages = set(range(len(self._chain.stages))) if step.aim == "both" else set()
        while not self._is_done():
            assembly = self._assemble(frame, sorted(stages))
            if assembly is None:
                return
            start, before_ns = self._encode(frame, assembly), self._bound_ns
            result = self._ask(assembly.program, start, self._make_settings(step))
            if step.aim != "schedule":
                self._learn(result)
            violated = self._decode(frame, result)
            is_stuck = step.aim == "bound" and self._bound_ns == before_ns
            if violated <= stages or is_stuck:
                return
            stages |= violated

    def _make_bounding(self, depth: int | None) -> Frame:
        return make_bounding_frame(self._chain, self._problem, self._budget_nbytes, depth)

    def _choose(self, step: Step) -> Iterator[Frame]:
        """Yield frames of what the relaxation of ``step`` recomputes, then of all of these ops.

        Nothing where no schedule of ``step`` is better than the best so far, or time ran out.
        """
        given = self._chain, self._problem, self._budget_nbytes
        frame = make_limiting_frame(*given, step.depth)
        assembly = self._assemble(frame, ())
        if assembly is None:
            return
        result = self._ask(relax(assembly.program), None, self._make_settings(step))
        if result.values is None:
            return
        used = find_used(frame, result.values)
        self._chosen |= {k for ops in used for k in ops}
        yield make_chosen_frame(*given, join_stages(used, self._best.windows))
        yield make_chosen_frame(*given, choose(frame, self._chosen, self._best.windows))

    def _assemble(self, frame: Frame, stages: Sequence[int]) -> Assembly | None:
        """Return the program with the windows of ``stages``; None: there was no time for it."""
        try:
            return assemble(frame, self._clock, stages, deadline_s=self._ends_s)
        except NotFoundError:
            return None

    def _suits(self, step: Step) -> bool:
        """Return whether a program is not too large, nor too large for the time that is left."""
        most, left_s = MOST_NEAR, self._find_share(0.5)
        if step.aim == "both":
            most = MOST_WHOLE // len(self._problem.graph.tensors)
        elif left_s is not None and self._write_s:
            most = min(most, int(left_s / self._write_s))
        return has_few_near(self._chain, step.depth, most)

    def _decode(self, frame: Frame, result: MilpResult) -> set[int]:
        """Offer the schedule of ``result``; return the stages in which it does not fit."""
        if result.values is None:
            return set()
        order = join_windows(self._chain, decode(frame, result.values))
        self._offer(order)
        if frame.hops.deep.any() and not self._is_done():
            self._run_evicting(weigh(frame, result.values))
        return self._best.find_violated(order)

    def _encode(self, frame: Frame, assembly: Assembly) -> FloatArray | None:
        """Return the best so far as a solution; None: there is none, or it is not one."""
        windows = self._best.windows
        if windows is None or not frame.hops.allow(windows):
            return None
        return encode(frame, assembly.windows, assembly.program.n_cols, windows)

    def _run_evicting(self, weights: Sequence[float]) -> None:
        for order in draft(self._chain, self._problem, self._budget_nbytes, weights):
            if order is not None:
                self._offer(order)
            if self._find_share(1.0) == 0.0:
                return

    def _offer(self, order: Order) -> None:
        before = self._best.order
        self._best.offer(order)
        if self._best.order is not before:
            self._report()

    def _report(self) -> None:
        self._report_to(None if self._best.windows is None else self._best.order, self._bound_ns)

    def _is_done(self) -> bool:
        """Return whether to end: good enough, no more to gain, or no more time."""
        if self._result is not None and self._result.status == "interrupted":
            return True
        if self._find_share(1.0) == 0.0:
            return True
        least_ns = self._find_least()
        return least_ns is not None and is_close(least_ns, self._bound_ns, self._limits)

    def _find_least(self) -> int | None:
        """Return the time of the best in hand, of the class or not; None: there is none."""
        own_ns = None if self._best.windows is None else self._best.time_ns
        return min((ns for ns in (own_ns, self._goal_ns) if ns is not None), default=None)

    def _find_share(self, share: float) -> float | None:
        """Return a ``share`` of the seconds that are left; None: no clock."""
        if math.isinf(self._ends_s):
            return None
        return share * max(0.0, self._ends_s - time.monotonic())

    def _make_settings(self, step: Step) -> Settings:
        """Return when a program is solved well enough.

        A bound need not be better than the gap asks for; and where nothing is left that is faster
        than the best in hand, there is no schedule to look for.
        """
        is_bound, nodes = step.aim != "schedule", self._limits.nodes
        gap = 0.0 if is_bound else self._limits.gap / _GAP_SHARE
        is_last = step.depth is None
        least_ns, target = self._find_least(), None
        if least_ns is not None:
            enough_ns = least_ns / (1 + self._limits.gap) if is_bound else least_ns
            target = enough_ns / self._clock.unit_ns * (1 + 1e-8) + _SLACK
        return Settings(
            gap / (1 + gap),
            self._find_share(1.0 if is_last else 0.25),
            nodes if is_last else min(MOST_NODES, nodes or MOST_NODES),
            target,
        )

    def _ask(self, program: Program, start: FloatArray | None, settings: Settings) -> MilpResult:
        self._result = solve_in_worker(program, settings, start)
        return self._result

    def _learn(self, result: MilpResult) -> None:
        """Raise the bound to that of a bounding program; raise when there are no schedules."""
        if result.status == "infeasible":
            error = self._make_failure(result)
            if self._best.windows is not None:
                raise SolverError(f"HiGHS proved that {error.message}, but one does")
            raise error
        if math.isfinite(result.bound):
            self._bound_ns = max(self._bound_ns, self._clock.round_bound(result.bound))
            self._report()

    def _make_failure(self, result: MilpResult) -> InterruptError | NotFoundError:
        return make_failure(self._problem, self._budget_nbytes, self._bound_ns, SPACE, result)

    def _conclude(self, known: Order | None) -> Finding:
        """Return the best, or ``known`` with the bound that holds for it."""
        best, space = self._best, SPACE
        interrupted = self._result is not None and self._result.status == "interrupted"
        if known is not None and (best.windows is None or best.time_ns > (self._goal_ns or 0)):
            order, time_ns = known, self._goal_ns or 0
            space = "all-schedules"
            bound_ns = self._problem.costs.total_ns
        elif best.windows is not None:
            order, time_ns = best.order, best.time_ns
            bound_ns = min(self._bound_ns, time_ns)
        else:  # that none fits would have been learned; a program for schedules knows nothing of it
            status: Status = "interrupted" if interrupted else "limit"
            raise self._make_failure(MilpResult(status, None, math.inf, -math.inf, 0, ""))
        termination = find_termination(time_ns, bound_ns, self._limits, interrupted=interrupted)
        return Finding(order, Claim(STRATEGY, space, bound_ns, termination, describe_solver()))
