"""Segments: retain a few forward tensors and recompute what lies between them.

Chen, Xu, Zhang and Guestrin, "Training Deep Nets with Sublinear Memory Cost", 2016, sections 3
and 4. Their networks are chains; for others Jain et al., "Checkmate", MLSys 2020, section 6.1,
choose the ops to retain among the articulation points of the forward graph ("AP"), or among all of
its ops in file order, as if it were a chain ("linearized").

We differ from both in one thing: only what a backward op needs is recomputed, and only once, so
that no order that retains the same ops is faster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator

from checkmate.errors import NotFoundError
from checkmate.graph import OpId
from checkmate.heuristics.articulation import (
    Forward,
    find_articulation_points,
    find_forward,
)
from checkmate.heuristics.keep_all import order_all
from checkmate.heuristics.tables import Tables, make_tables
from checkmate.liveness import insert_frees
from checkmate.problem import Problem
from checkmate.simulate import Peak, simulate
from checkmate.units import format_nbytes_exactly

_FINER = 1.2
"""Each segment size that is tried is this many times smaller than the one before."""


Candidates = Callable[[Tables, Forward], tuple[OpId, ...]]
"""Which forward ops may be retained, in graph order."""


def list_forward(tables: Tables, forward: Forward) -> tuple[OpId, ...]:
    """Return all forward ops, as candidates: the graph taken for a chain."""
    return forward.ops


def list_chain(tables: Tables, forward: Forward) -> tuple[OpId, ...]:
    """Return the longest chain of forward ops, as candidates."""
    return forward.chain


def order_by_sqrt(
    problem: Problem, find_candidates: Candidates = find_articulation_points
) -> tuple[OpId, ...]:
    """Return the order that retains every k-th candidate, k the root of their number.

    Ops after the last retained one are retained too: their backward ops come first.
    """
    tables = make_tables(problem)
    points = find_candidates(tables, find_forward(tables))
    step = max(1, math.isqrt(len(points)))
    return order_retaining(problem, points[step - 1 :: step])


def order_by_size(problem: Problem, segment_nbytes: int) -> tuple[OpId, ...]:
    """Return the order that retains the first articulation point after every ``segment_nbytes``.

    A segment's size is the sum of the outputs of its ops.
    """
    tables = make_tables(problem)
    forward = find_forward(tables)
    points = frozenset(find_articulation_points(tables, forward))
    return order_retaining(problem, _pick_by_size(tables, forward, points, segment_nbytes))


def order_greedily(
    problem: Problem, budget_nbytes: int, find_candidates: Candidates = find_articulation_points
) -> tuple[OpId, ...]:
    """Return the fastest of the orders by size that fits ``budget_nbytes``.

    A segment ends with the first candidate after its size. Raises `NotFoundError` when none fits.
    """
    best: tuple[int, tuple[OpId, ...]] | None = None
    least: Peak | None = None
    for retained in _vary_size(make_tables(problem), find_candidates):
        order = order_retaining(problem, retained)
        simulation = simulate(problem, insert_frees(problem.graph, order))
        if least is None or simulation.peak.nbytes < least.nbytes:
            least = simulation.peak
        fits = simulation.peak.nbytes <= budget_nbytes
        if fits and (best is None or simulation.time_ns < best[0]):
            best = (simulation.time_ns, order)
    if best is None:
        raise _not_found(problem, budget_nbytes, least)
    return best[1]


def order_retaining(problem: Problem, retained: Collection[OpId]) -> tuple[OpId, ...]:
    """Return the order that recomputes every forward op but ``retained``, where it is needed.

    An op runs again in the stage of the first backward op that needs what it makes, be it by way
    of other recomputes; its outputs stay in memory until their last use. Ops after the last
    retained one, and ops that may run only once, are not recomputed. Without backward ops
    nothing is.
    """
    tables = make_tables(problem)
    stages = _find_stages(tables, find_forward(tables), frozenset(retained))
    again: list[list[OpId]] = [[] for _ in range(tables.n_ops)]
    for op, stage in enumerate(stages):
        if stage < tables.n_ops:
            again[stage].append(OpId(op))
    return tuple(op for stage in order_all(problem) for op in (*again[stage], stage))


def _find_stages(tables: Tables, forward: Forward, retained: frozenset[OpId]) -> list[int]:
    """Return, per op, the stage in which it runs again; the number of ops where it does not."""
    never = tables.n_ops
    stages = [never] * tables.n_ops
    last = max(retained, default=-1)
    for op in reversed(forward.ops):
        if op in retained or op > last or not tables.recomputable[op]:
            continue
        needs = [
            reader if reader > forward.ops[-1] else stages[reader]
            for tensor in tables.makes[op]
            for reader in tables.readers[tensor]
        ]
        stages[op] = min(needs, default=never)
    return stages


def _pick_by_size(
    tables: Tables, forward: Forward, points: Collection[OpId], segment_nbytes: int
) -> tuple[OpId, ...]:
    """Return the first of ``points`` after every ``segment_nbytes`` of outputs."""
    picked: list[OpId] = []
    nbytes = 0
    for op in forward.ops:
        nbytes += sum(tables.nbytes[tensor] for tensor in tables.makes[op])
        if op in points and nbytes > segment_nbytes:
            picked.append(op)
            nbytes = 0
    return tuple(picked)


def _vary_size(tables: Tables, find_candidates: Candidates) -> Iterator[tuple[OpId, ...]]:
    """Yield what different segment sizes retain, from one segment to as many as there are."""
    forward = find_forward(tables)
    points = frozenset(find_candidates(tables, forward))
    segment_nbytes = sum(tables.nbytes[t] for op in forward.ops for t in tables.makes[op])
    tried: set[tuple[OpId, ...]] = set()
    while True:
        retained = _pick_by_size(tables, forward, points, segment_nbytes)
        if retained not in tried:
            tried.add(retained)
            yield retained
        if segment_nbytes == 0:
            return
        segment_nbytes = int(segment_nbytes / _FINER)


def _not_found(problem: Problem, budget_nbytes: int, least: Peak | None) -> NotFoundError:
    assert least is not None
    name = "no op" if least.op is None else f"op {problem.graph.ops[least.op].name!r}"
    return NotFoundError(
        f"no choice of segments found that fits in {format_nbytes_exactly(budget_nbytes)}:"
        f" the smallest peak is {format_nbytes_exactly(least.nbytes)}, at {name}",
        hint="raise the budget, or use a strategy that chooses tensor by tensor",
    )
