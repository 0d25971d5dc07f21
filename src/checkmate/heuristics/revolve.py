"""Binomial checkpointing of chains.

Griewank and Walther, "Algorithm 799: Revolve", ACM TOMS 26(1), 2000: with room for ``s`` states of
a chain of steps of equal cost, the order that reverses it with the fewest forward steps. As in
Jain et al., "Checkmate", MLSys 2020, section 6.1, it says which forward results are retained at
which stage, costs and sizes taken as equal; what must be computed then follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise
from math import comb

from checkmate.errors import NotFoundError, UnsuitableError
from checkmate.graph import OpId, TensorId
from checkmate.heuristics.articulation import find_forward
from checkmate.heuristics.given import order_given
from checkmate.heuristics.tables import Tables, make_tables
from checkmate.liveness import insert_frees
from checkmate.problem import Problem
from checkmate.simulate import simulate
from checkmate.units import format_nbytes_exactly

_ALL_UP_TO = 32
"""Every number of states up to this is tried, of larger ones each a tenth more than the last."""


def count_steps(n_states: int, n_slots: int) -> int:
    """Return the fewest forward steps that reach each of ``n_states``, the last one first.

    The first state is there at the beginning and takes one of ``n_slots``, which are 1 or more; a
    state that is reached is at hand without one. This is t(l, s) = r l - C(s + r, s + 1) with the
    least r for which C(s + r, s) >= l.
    """
    r = 0
    while comb(n_slots + r, n_slots) < n_states:
        r += 1
    return r * n_states - comb(n_slots + r, n_slots + 1)


def place_states(first: int, last: int, n_slots: int) -> Iterator[int]:
    """Yield the states to store on the way from ``first``, which is stored, to ``last``."""
    while n_slots > 1 and last - first > 1:
        n_states = last - first + 1

        def count(step: int, n_states: int = n_states, n_slots: int = n_slots) -> int:
            after = count_steps(n_states - step, n_slots - 1)
            return step + after + count_steps(step, n_slots)

        first += min(range(1, n_states), key=count)
        n_slots -= 1
        if first < last:
            yield first


def order_by_revolve(problem: Problem, budget_nbytes: int) -> tuple[OpId, ...]:
    """Return the fastest that fits of the orders for each number of states.

    Raises `UnsuitableError` when the forward ops are no chain, `NotFoundError` when none fits.
    """
    tables = make_tables(problem)
    links = require_chain(problem, tables)
    best: tuple[int, tuple[OpId, ...]] | None = None
    least_nbytes: int | None = None
    for n_states in _vary(len(links)):
        order = order_with_states(tables, links, n_states)
        simulation = simulate(problem, insert_frees(problem.graph, order))
        peak_nbytes = simulation.peak.nbytes
        least_nbytes = peak_nbytes if least_nbytes is None else min(least_nbytes, peak_nbytes)
        if peak_nbytes <= budget_nbytes and (best is None or simulation.time_ns < best[0]):
            best = (simulation.time_ns, order)
    if best is None:
        assert least_nbytes is not None
        raise NotFoundError(
            f"no number of states fits in {format_nbytes_exactly(budget_nbytes)}: the smallest"
            f" peak is {format_nbytes_exactly(least_nbytes)}"
        )
    return best[1]


def require_chain(problem: Problem, tables: Tables) -> tuple[OpId, ...]:
    """Return the links of the chain that the forward ops are, in graph order.

    A link reads, of what links make, only what the one before it makes, and nothing else leads
    from one link to another. What depends on no link (a weight that is transposed) and what the
    end of the chain does not depend on (a shape for the backward pass) are no part of it. Raises
    `UnsuitableError`, naming the first op that breaks the chain.
    """
    graph, links = problem.graph, find_forward(tables).chain
    if not links:
        raise UnsuitableError(f"graph {graph.name!r} has no backward ops, so that it is no chain")
    leading = _find_ancestors(tables, links[-1])
    before: dict[OpId, set[OpId]] = {link: {last} for last, link in pairwise(links)}
    from_links: set[OpId] = set()
    for op in sorted(leading):
        makers = {tables.producers[tensor] for tensor in tables.reads[op]} & from_links
        if makers != before.get(op, set()):
            raise UnsuitableError(
                f"graph {graph.name!r} is no chain: forward op {graph.ops[op].name!r} reads what"
                " another op than the one before it makes",
                hint="choose another --strategy",
            )
        if makers or op == links[0]:
            from_links.add(op)
    return links


def _find_ancestors(tables: Tables, op: OpId) -> frozenset[OpId]:
    """Return ``op`` and all that it depends on."""
    found = {op}
    pending = [op]
    while pending:
        makers = (tables.producers[tensor] for tensor in tables.reads[pending.pop()])
        fresh = [maker for maker in dict.fromkeys(makers) if maker not in found]
        found.update(fresh)
        pending += fresh
    return frozenset(found)


def order_with_states(tables: Tables, links: Sequence[OpId], n_states: int) -> tuple[OpId, ...]:
    """Return the order that stores up to ``n_states`` links' results beside what is at hand.

    Whatever else an op makes is retained.
    """
    places = {op: place for place, op in enumerate(links)}
    others = [TensorId(e) for e, op in enumerate(tables.producers) if op >= 0 and op not in places]
    retained: list[list[TensorId]] = []
    for t, stored in enumerate(_follow(_lay_out(tables, places), n_states)):
        made = (e for place in sorted(stored) for e in tables.makes[links[place]])
        retained.append([*made, *(e for e in others if tables.producers[e] < t)])
    return order_given(tables, retained)


@dataclass(frozen=True, slots=True)
class _Stage:
    """A stage as the chain sees it; a place is that of a link in it."""

    is_forward: bool
    """No link has its first run after it."""
    at: int
    """Forward: how many links ran before. Else the lowest place that this stage reads, or one
    since the last link."""
    needs: frozenset[int]
    """The places that it reads, and the other stages at the same place."""


def _lay_out(tables: Tables, places: Mapping[OpId, int]) -> tuple[_Stage, ...]:
    at = 0
    laid: list[_Stage] = []
    for op in range(tables.n_ops):
        makers = (tables.producers[tensor] for tensor in tables.reads[op])
        reads = frozenset(places[maker] for maker in makers if maker in places)
        is_forward = at < len(places) if not laid or laid[-1].is_forward else False
        at = at if is_forward else min((at, *reads))
        laid.append(_Stage(is_forward, at, reads))
        at += OpId(op) in places
    return tuple(_join(laid))


def _join(laid: Sequence[_Stage]) -> Iterator[_Stage]:
    """Yield ``laid`` with the needs of whole groups: of the stages at one place."""
    groups: dict[int, frozenset[int]] = {}
    for stage in laid:
        if not stage.is_forward:
            groups[stage.at] = groups.get(stage.at, frozenset()) | stage.needs
    for stage in laid:
        yield replace(stage, needs=groups.get(stage.at, frozenset()))


def _follow(stages: Sequence[_Stage], n_states: int) -> Iterator[Set[int]]:
    """Yield, per stage, the places whose results are retained into it."""
    goal = next((stage for stage in stages if not stage.is_forward), stages[-1])
    stack = [-1, *place_states(-1, goal.at, n_states + 1)]
    at, held = goal.at, goal.needs
    for stage in stages:
        if stage.is_forward:
            yield {p for p in (*stack, *goal.needs, stage.at - 1) if 0 <= p < stage.at}
            continue
        if stage.at == at:
            yield {p for p in (*stack, *held) if p >= 0}
            continue
        kept = stage.needs & {*held, *stack}
        while stack[-1] > stage.at:
            stack.pop()
        yield {p for p in (*stack, *kept) if p >= 0}
        stack += place_states(stack[-1], stage.at, n_states - len(stack) + 2)
        at, held = stage.at, stage.needs


def _vary(n_links: int) -> Iterator[int]:
    """Yield the numbers of states to try, the largest first."""
    n_states = n_links
    while n_states >= 0:
        yield n_states
        n_states = min(n_states - 1, max(_ALL_UP_TO, n_states * 10 // 11))
