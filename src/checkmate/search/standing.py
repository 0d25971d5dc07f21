"""Where a search of several phases stands: one incumbent, its bounds, one clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from checkmate.errors import (
    CheckmateError,
    InterruptError,
    NoneInSpaceError,
    NotFoundError,
    SolverError,
)
from checkmate.graph import Graph, OpId
from checkmate.liveness import remove_unread
from checkmate.milp.chain import is_chain_of_stages
from checkmate.milp.encode import is_frontier_advancing
from checkmate.plan import Claim, SolverInfo, Space
from checkmate.problem import Problem
from checkmate.search.chain_search import ChainSearch
from checkmate.search.claims import find_termination, is_close, run_order
from checkmate.search.finding import Finding, Limits
from checkmate.search.progress import Progress
from checkmate.solver.process import describe_solver
from checkmate.units import format_ns

Order = tuple[OpId, ...]

MEMBERS: Mapping[Space, Callable[[Graph, Sequence[OpId]], bool]] = {
    "all-schedules": lambda _graph, _order: True,
    "frontier-advancing": is_frontier_advancing,
    "chain-of-stages": is_chain_of_stages,
}
"""Per space, whether an order is in it; the widest first, each a part of the one before."""

_PROGRAMS = ("stages", "exact")
"""Strategies that solve programs."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An order that fits, and who found it."""

    order: Order
    time_ns: int
    strategy: str


class Standing:
    """What the phases of a search have in hand together, and the time that they have left.

    Nothing is taken on trust: an order is run before it is kept, and a bound above the time of an
    order in its own space is thrown away as the contradiction that it is.
    """

    def __init__(self, problem: Problem, budget_nbytes: int, limits: Limits) -> None:
        self._began_s = time.monotonic()
        self._limits = limits
        self._share = 1.0
        self._phase = ""
        self._bounds: dict[Space, int] = dict.fromkeys(MEMBERS, 0)
        self._bounds["all-schedules"] = problem.costs.total_ns
        self._errors: list[CheckmateError] = []
        self._is_interrupted = False
        self.problem = problem
        self.budget_nbytes = budget_nbytes
        self.best: Candidate | None = None
        """The fastest order so far that fits; None: there is none."""
        self._whole: Candidate | None = None
        self.draft: Order | None = None
        """What the greedy found: local search that begins from it may end elsewhere than that from
        the best order so far; None: it found nothing that fits."""
        self.chains: ChainSearch | None = None
        """The search for chains of stages, once it has begun."""

    def begin(self, phase: str, share: float) -> None:
        """Enter ``phase``, which may use ``share`` of the time that is left."""
        self._phase = phase
        self._share = share
        self._tell()

    def offer(self, order: Sequence[OpId], strategy: str) -> None:
        """Keep ``order``, found by ``strategy``, if it fits and is the fastest.

        What it computes and does not read is left out, which may lead out of the space in which
        it was found: phases go on from the whole order.
        """
        whole = self._run(order, strategy)
        if whole is None:
            return
        if self._whole is None or whole.time_ns < self._whole.time_ns:
            self._whole = whole
        read = self._run(remove_unread(self.problem.graph, order), strategy)
        best = min((one for one in (self.best, read, whole) if one), key=lambda one: one.time_ns)
        if best is not self.best:
            self.best = best
            self._drop_false_bounds()
            self._tell()

    def raise_bound(self, space: Space, bound_ns: int) -> None:
        """Learn from the solver that no schedule in ``space`` that fits takes less."""
        if bound_ns > self._bounds[space]:
            self._bounds[space] = bound_ns
            self._drop_false_bounds()
            self._tell()

    def fail(self, error: CheckmateError) -> None:
        """Learn that the phase ended with ``error``."""
        self._errors.append(error)
        if not isinstance(error, NotFoundError):
            self._limits.listener.warn(f"the {self._phase} phase failed: {error.message}")

    def interrupt(self) -> None:
        """Learn that the user wants no more than there is."""
        self._is_interrupted = True

    @property
    def order(self) -> Order | None:
        """The fastest order so far that fits, as it was offered."""
        return None if self._whole is None else self._whole.order

    @property
    def limits(self) -> Limits:
        """What the phase may use."""
        left_s = self._find_left()
        return replace(self._limits, time_s=None if left_s is None else left_s * self._share)

    @property
    def is_ended(self) -> bool:
        """Whether there is no more to do: interrupted, or good enough."""
        return self._is_interrupted or self.is_good

    @property
    def is_out_of_time(self) -> bool:
        """Whether the clock has run out."""
        return self._find_left() == 0.0

    @property
    def is_good(self) -> bool:
        """Whether the best order is as close to a bound as was asked for."""
        if self.best is None:
            return False
        return is_close(self.best.time_ns, max(self._bounds.values()), self._limits)

    @property
    def may_be_polished(self) -> bool:
        """Whether a wider space may hold something faster by more than the gap."""
        if self.best is None or self._is_interrupted:
            return False
        return not is_close(self.best.time_ns, self._bounds["all-schedules"], self._limits)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the search began."""
        return time.monotonic() - self._began_s

    def conclude(self) -> Finding:
        """Return the best order with the claim that says most; raise what went wrong otherwise."""
        best = self.best
        if best is None:
            raise self._choose_error()
        space = self._choose_space(best)
        bound_ns = min(self._bounds[space], best.time_ns)
        termination = find_termination(
            best.time_ns, bound_ns, self._limits, interrupted=self._is_interrupted
        )
        has_solver = best.strategy in _PROGRAMS or space != "all-schedules"
        solver = describe_solver() if has_solver else SolverInfo()
        return Finding(best.order, Claim(best.strategy, space, bound_ns, termination, solver))

    def _choose_space(self, best: Candidate) -> Space:
        """Return the widest space in which ``best`` is good enough, else that of the best bound."""
        for space, bound_ns in self._bounds.items():
            if is_close(best.time_ns, bound_ns, self._limits):
                return space
        return max(self._bounds, key=lambda space: self._bounds[space])

    def _choose_error(self) -> CheckmateError:
        """Return the last of the errors that prove most."""
        if self._is_interrupted:
            return InterruptError("interrupted before anything that fits was found")
        for kind in (NoneInSpaceError, NotFoundError, CheckmateError):
            found = [error for error in self._errors if isinstance(error, kind)]
            if found:
                return found[-1]
        return NotFoundError("no schedule was found in the time given", hint="raise --time-limit")

    def _run(self, order: Sequence[OpId], strategy: str) -> Candidate | None:
        """Return what ``order`` is; None: it does not fit."""
        simulation = run_order(self.problem, order)
        if simulation.peak.nbytes > self.budget_nbytes:
            return None
        return Candidate(tuple(order), simulation.time_ns, strategy)

    def _drop_false_bounds(self) -> None:
        if self.best is None:
            return
        for space, bound_ns in self._bounds.items():
            is_above = bound_ns > self.best.time_ns
            if is_above and MEMBERS[space](self.problem.graph, self.best.order):
                self._bounds[space] = 0
                self.fail(
                    SolverError(
                        f"no {space} schedule was to take less than {format_ns(bound_ns)}, but one"
                        f" takes {format_ns(self.best.time_ns)}"
                    )
                )

    def _find_left(self) -> float | None:
        """Return the seconds that are left; None: no clock."""
        if self._limits.time_s is None:
            return None
        return max(0.0, self._limits.time_s - self.elapsed_s)

    def _tell(self) -> None:
        time_ns = None if self.best is None else self.best.time_ns
        bound_ns = max(self._bounds.values())
        ideal_ns = self.problem.costs.total_ns
        self._limits.listener.tell(Progress(self._phase, time_ns, bound_ns, ideal_ns))
