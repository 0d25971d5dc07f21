"""The smallest budget in which something fits, and what is proved about smaller ones."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

from checkmate.errors import InterruptError, NotFoundError, RunError
from checkmate.graph import OpId
from checkmate.heuristics.greedy import improve_smallest
from checkmate.heuristics.keep_all import order_all
from checkmate.liveness import remove_unread
from checkmate.milp.chain import Chain, arrange
from checkmate.milp.chain_encode import decode, join_windows
from checkmate.milp.chain_frame import Frame, make_bounding_frame, make_limiting_frame
from checkmate.milp.chain_smallest import assemble_smallest, find_bound_nbytes
from checkmate.milp.model import Program
from checkmate.problem import Problem
from checkmate.search.bound import smallest_conceivable_nbytes
from checkmate.search.claims import run_order
from checkmate.search.exhaust import find_any_order
from checkmate.search.finding import Limits
from checkmate.search.incumbent import Incumbent
from checkmate.search.phases import GREEDY_EFFORT
from checkmate.solver.process import solve_in_worker
from checkmate.solver.result import MilpResult, Settings

_DEPTH = 4
_CLOSE_SHARE = 1000
"""Close enough to a bound: within this share of it."""
_GAP = 1e-4
_NODES = 200
_LARGE_N_OPS = 2000
"""Above this many ops the greedy tries one parameter set."""
_LEAST_S, _LEAST_OP_S = 0.4, 0.002
"""With less time left, in all and per op, no program is begun."""
_MOST_TINY_OPS = 12
"""Up to this many ops all schedules are tried."""
_MOST_OPS = 400
"""Up to this many ops programs are tried in which all recomputes are near."""

Order = tuple[OpId, ...]


@dataclass(frozen=True, slots=True)
class Smallest:
    """What is known of the smallest budget."""

    nbytes: int
    """The smallest in which something was found to fit."""
    order: Order
    """It fits in that."""
    bound_nbytes: int
    """No schedule fits in less."""
    chain_bound_nbytes: int
    """No chain of stages fits in less; at least ``bound_nbytes``."""
    is_interrupted: bool = False
    """A Ctrl-C ended the search."""


def find_smallest(problem: Problem, limits: Limits) -> Smallest:
    """Return the smallest budget found of a ``problem`` whose views were folded.

    The greedy gets half of the time, programs of chains of stages the rest, and of a
    tiny graph all schedules are tried. A Ctrl-C ends it with what there is then.
    """
    search = _Search(problem, limits)
    try:
        search.run_greedy()
        search.solve_chains()
        search.exhaust()
    except (KeyboardInterrupt, InterruptError):
        return replace(search.conclude(), is_interrupted=True)
    except RunError as error:
        limits.listener.warn(f"the search for the smallest budget failed: {error.message}")
    return search.conclude()


class _Search:
    def __init__(self, problem: Problem, limits: Limits) -> None:
        self._began_s = time.monotonic()
        self._problem = problem
        self._limits = limits
        self._bound_nbytes, _ = smallest_conceivable_nbytes(problem)
        self._chain_bound_nbytes = self._bound_nbytes
        self._n_found = 0
        self._nbytes = 0
        self._order: Order = ()
        self._offer(order_all(problem))

    def run_greedy(self) -> None:
        """Narrow down the smallest budget of evicting runs."""
        is_large = len(self._problem.graph.ops) > _LARGE_N_OPS
        for found in improve_smallest(self._problem, 1 if is_large else GREEDY_EFFORT):
            if found.peak_nbytes < self._nbytes:
                self._offer(found.order)
            is_late = self._find_left() < self._find_all() / 2
            if self._is_close(self._bound_nbytes) or (is_late and self._n_found > 1):
                return

    def solve_chains(self) -> None:
        """Minimise the memory of chains of stages."""
        chain = arrange(self._problem.graph)
        if chain is None:
            return
        is_small = len(self._problem.graph.ops) <= _MOST_OPS
        for make_frame in (make_limiting_frame, make_bounding_frame):
            for depth in (_DEPTH, None) if is_small else (_DEPTH,):
                if self._has_more():
                    frame = make_frame(chain, self._problem, self._bound_nbytes, depth)
                    self._solve(chain, frame, is_bound=make_frame is make_bounding_frame)

    def exhaust(self) -> None:
        """Find the smallest budget of a tiny graph: all that memory can hold is tried."""
        if len(self._problem.graph.ops) > _MOST_TINY_OPS:
            return
        while self._nbytes > self._bound_nbytes and self._find_left() > _LEAST_S:
            budget_nbytes = (self._bound_nbytes + self._nbytes) // 2
            try:
                order = find_any_order(self._problem, budget_nbytes)
            except NotFoundError:
                return
            if order is None:
                self._bound_nbytes = budget_nbytes + 1
                self._chain_bound_nbytes = max(self._chain_bound_nbytes, self._bound_nbytes)
                continue
            before_nbytes = self._nbytes
            self._offer(order)
            if self._nbytes == before_nbytes:
                return

    def conclude(self) -> Smallest:
        """Return what was found; a better order outside the class leaves the bound of the class."""
        return Smallest(self._nbytes, self._order, self._bound_nbytes, self._chain_bound_nbytes)

    def _solve(self, chain: Chain, frame: Frame, *, is_bound: bool) -> None:
        """Solve one program, again and again while rows are missing."""
        stages: set[int] = set()
        while self._has_more():
            result = self._ask(assemble_smallest(frame, sorted(stages)).program)
            if is_bound and math.isfinite(result.bound):
                bound_nbytes = find_bound_nbytes(frame, result.bound)
                self._chain_bound_nbytes = max(self._chain_bound_nbytes, bound_nbytes)
            if result.values is None:
                return
            order = join_windows(chain, decode(frame, result.values))
            self._offer(order)
            units = math.ceil(result.objective / frame.scale.power)
            aim_nbytes = frame.budget_nbytes + units * frame.scale.unit_nbytes
            violated = Incumbent(chain, self._problem, aim_nbytes).find_violated(order)
            if violated <= stages:
                return
            stages |= violated

    def _ask(self, program: Program) -> MilpResult:
        left_s = self._find_left() / 2
        time_s = left_s if math.isfinite(left_s) else None
        result = solve_in_worker(program, Settings(_GAP, time_s, _NODES))
        if result.status == "interrupted":
            raise InterruptError("interrupted")
        return result

    def _offer(self, order: Order) -> None:
        for one in (order, remove_unread(self._problem.graph, order)):
            nbytes = run_order(self._problem, one).peak.nbytes
            if not self._order or nbytes < self._nbytes:
                self._nbytes, self._order = nbytes, one
                self._n_found += 1

    def _has_more(self) -> bool:
        """Return whether there is something to gain and time to do it."""
        least_s = max(_LEAST_S, _LEAST_OP_S * len(self._problem.graph.ops))
        return self._find_left() > least_s and not self._is_close(self._chain_bound_nbytes)

    def _is_close(self, bound_nbytes: int) -> bool:
        return (self._nbytes - bound_nbytes) * _CLOSE_SHARE <= bound_nbytes

    def _find_all(self) -> float:
        return math.inf if self._limits.time_s is None else self._limits.time_s

    def _find_left(self) -> float:
        """Return the seconds that are left; infinite without a clock."""
        return self._find_all() - (time.monotonic() - self._began_s)
