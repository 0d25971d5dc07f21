"""The smallest budget in which something fits, and what is proved about smaller ones."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from checkmate.errors import InterruptError, RunError
from checkmate.graph import OpId
from checkmate.heuristics.greedy import improve_smallest
from checkmate.heuristics.keep_all import order_all
from checkmate.liveness import remove_unread
from checkmate.milp.chain import Chain, arrange
from checkmate.milp.chain_encode import decode, join_windows
from checkmate.milp.chain_frame import Frame, make_bounding_frame, make_limiting_frame
from checkmate.milp.chain_smallest import assemble_smallest, find_bound_nbytes
from checkmate.problem import Problem
from checkmate.search.bound import smallest_conceivable_nbytes
from checkmate.search.claims import run_order
from checkmate.search.finding import Limits
from checkmate.search.incumbent import Incumbent
from checkmate.search.phases import GREEDY_EFFORT
from checkmate.solver.process import solve_in_worker
from checkmate.solver.result import Settings

_DEPTH = 4
_CLOSE_SHARE = 1000
"""Close enough to a bound: within this share of it."""
_NODES = 200
_LARGE_N_OPS = 2000
"""Above this many ops the greedy tries one parameter set."""
_LEAST_S = 0.5
"""With less time left, no program is begun."""

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


def find_smallest(problem: Problem, limits: Limits) -> Smallest:
    """Return the smallest budget found of a ``problem`` whose views were folded.

    The greedy gets half of the time, programs of chains of stages the rest. A Ctrl-C ends it with
    what there is then.
    """
    search = _Search(problem, limits)
    try:
        search.run_greedy()
        search.solve_chains()
    except (KeyboardInterrupt, InterruptError):
        pass  # what is in hand is enough
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
        self._nbytes = 0
        self._order: Order = ()
        self._offer(order_all(problem))

    def run_greedy(self) -> None:
        """Narrow down the smallest budget of evicting runs."""
        is_large = len(self._problem.graph.ops) > _LARGE_N_OPS
        for found in improve_smallest(self._problem, 1 if is_large else GREEDY_EFFORT):
            if found.peak_nbytes < self._nbytes:
                self._offer(found.order)
            if self._is_close(self._bound_nbytes) or self._find_left() < self._find_all() / 2:
                return

    def solve_chains(self) -> None:
        """Minimise the memory of chains of stages."""
        chain = arrange(self._problem.graph)
        if chain is None:
            return
        for make_frame in (make_limiting_frame, make_bounding_frame):
            for depth in (_DEPTH, None):
                frame = make_frame(chain, self._problem, self._bound_nbytes, depth)
                self._solve(chain, frame, is_bound=make_frame is make_bounding_frame)

    def conclude(self) -> Smallest:
        """Return what was found; a better order outside the class leaves the bound of the class."""
        return Smallest(self._nbytes, self._order, self._bound_nbytes, self._chain_bound_nbytes)

    def _solve(self, chain: Chain, frame: Frame, *, is_bound: bool) -> None:
        stages: set[int] = set()
        while self._find_left() > _LEAST_S and not self._is_close(self._chain_bound_nbytes):
            left_s = self._find_left() / 2
            settings = Settings(1e-4, left_s if math.isfinite(left_s) else None, _NODES)
            result = solve_in_worker(assemble_smallest(frame, sorted(stages)).program, settings)
            if is_bound and math.isfinite(result.bound):
                bound_nbytes = find_bound_nbytes(frame, result.bound)
                self._chain_bound_nbytes = max(self._chain_bound_nbytes, bound_nbytes)
            if result.status == "interrupted":
                raise InterruptError("interrupted")
            if result.values is None:
                return
            order = join_windows(chain, decode(frame, result.values))
            self._offer(order)
            units = result.objective / frame.scale.power
            aim_nbytes = frame.budget_nbytes + math.ceil(units) * frame.scale.unit_nbytes
            violated = Incumbent(chain, self._problem, aim_nbytes).find_violated(order)
            if violated <= stages:
                return
            stages |= violated

    def _offer(self, order: Order) -> None:
        for one in (order, remove_unread(self._problem.graph, order)):
            nbytes = run_order(self._problem, one).peak.nbytes
            if not self._order or nbytes < self._nbytes:
                self._nbytes, self._order = nbytes, one

    def _is_close(self, bound_nbytes: int) -> bool:
        return (self._nbytes - bound_nbytes) * _CLOSE_SHARE <= bound_nbytes

    def _find_all(self) -> float:
        return math.inf if self._limits.time_s is None else self._limits.time_s

    def _find_left(self) -> float:
        """Return the seconds that are left; infinite without a clock."""
        return self._find_all() - (time.monotonic() - self._began_s)
