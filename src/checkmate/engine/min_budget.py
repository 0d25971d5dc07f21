"""The smallest budget: what is known to work, and below which nothing can."""

from __future__ import annotations

from dataclasses import dataclass, replace

from checkmate.arena import count_budget_nbytes
from checkmate.engine.clock import Clock
from checkmate.engine.min_arena import CountWritten, count_as_is, pack_smallest
from checkmate.folding import fold_views
from checkmate.graph import OpId
from checkmate.heuristics.greedy import find_smallest_budget
from checkmate.problem import Problem
from checkmate.search.bound import smallest_conceivable_nbytes
from checkmate.search.finding import Limits
from checkmate.search.smallest import Smallest, find_smallest
from checkmate.simulate import simulate
from checkmate.units import format_nbytes_exactly

_QUOTE_S = 1.0
"""Time for the smallest budget in a message."""
_QUOTE_EFFORT, _QUOTE_MOST_OPS = 8, 2000
"""Parameter sets without a clock; one where there are more ops."""


@dataclass(frozen=True, slots=True)
class MinBudget:
    """The smallest budget known to work, and what is proved about smaller ones."""

    nbytes: int
    bound_nbytes: int
    """No schedule of this op order fits in less."""
    chain_bound_nbytes: int
    """No chain of stages fits in less."""
    op: OpId | None
    """The op that binds in the schedule that was found; None: the resident tensors do."""
    order: tuple[OpId, ...]
    """An order, of the problem without its views, that fits."""

    def describe(self, problem: Problem) -> str:
        """Return it in words."""
        where = "" if self.op is None else f", where op {problem.graph.ops[self.op].name!r} binds"
        known = f"the smallest budget known to work is {format_nbytes_exactly(self.nbytes)}{where}"
        if self.nbytes <= self.bound_nbytes:
            return f"{known}; nothing fits in less"
        known += f"; nothing fits in less than {format_nbytes_exactly(self.bound_nbytes)}"
        if self.chain_bound_nbytes <= self.bound_nbytes:
            return known
        return f"{known}, no chain of stages in {format_nbytes_exactly(self.chain_bound_nbytes)}"


def find_min_budget(
    problem: Problem, limits: Limits, count_written: CountWritten = count_as_is
) -> MinBudget:
    """Return the smallest budget found; in its arena, as it is written, when ``problem`` has one.

    What writing adds to bytes alone is not counted.
    """
    folding, clock = fold_views(problem), Clock(limits)
    if problem.arena is None:
        return _measure(problem, find_smallest(folding.folded, limits))
    found = find_smallest(folding.folded, clock.take(0.5))
    rest = replace(limits, time_s=0.0) if found.is_interrupted else clock.take()
    packed = pack_smallest(folding, found.order, rest, count_written)
    measured = _measure(problem, replace(found, order=packed.order))
    return replace(measured, nbytes=packed.nbytes)


def quote_min_budget(problem: Problem, limits: Limits) -> MinBudget:
    """Return the smallest budget found in about a second, for a message.

    Without a clock in ``limits``, by a search that has none either.
    """
    if limits.time_s is not None:
        return find_min_budget(problem, replace(limits, time_s=min(_QUOTE_S, limits.time_s)))
    folded = fold_views(problem).folded
    is_large = len(folded.graph.ops) > _QUOTE_MOST_OPS
    nbytes, order = find_smallest_budget(folded, 1 if is_large else _QUOTE_EFFORT)
    bound_nbytes, _ = smallest_conceivable_nbytes(folded)
    return _measure(problem, Smallest(nbytes, order, bound_nbytes, bound_nbytes))


def _measure(problem: Problem, found: Smallest) -> MinBudget:
    """Return ``found`` as what the whole problem needs for it."""
    folding = fold_views(problem)
    schedule = folding.lay_out(found.order)
    peak = simulate(problem, schedule).peak
    nbytes = max(peak.nbytes, count_budget_nbytes(problem, schedule))
    bound_nbytes = found.bound_nbytes - folding.spare_nbytes
    chain_bound_nbytes = found.chain_bound_nbytes - folding.spare_nbytes
    return MinBudget(nbytes, bound_nbytes, chain_bound_nbytes, peak.op, found.order)
