"""Binomial checkpointing of chains.

Griewank and Walther, "Algorithm 799: Revolve", ACM TOMS 26(1), 2000: with room for ``s`` states of
a chain of steps of equal cost, the order that reverses it with the fewest forward steps. As in
Jain et al., "Checkmate", MLSys 2020, section 6.1, it says which forward results are retained at
which stage, costs and sizes taken as equal; what must be computed then follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from math import comb

from checkmate.errors import NotFoundError, UnsuitableError
from checkmate.graph import OpId, TensorId
from checkmate.heuristics.articulation import Forward, find_forward
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
    forward = require_chain(problem, tables)
    best: tuple[int, tuple[OpId, ...]] | None = None
    least_nbytes: int | None = None
    for n_states in _vary(len(forward.ops)):
        order = order_with_states(tables, forward, n_states)
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


def require_chain(problem: Problem, tables: Tables) -> Forward:
    """Return the forward part; raise `UnsuitableError`, naming the first op that is no link.

    In a chain each forward op reads what the op before it makes, and nothing else but resident
    tensors.
    """
    name, forward = problem.graph.name, find_forward(tables)
    if not forward.ops:
        raise UnsuitableError(f"graph {name!r} has no backward ops, so that it is no chain")
    before: set[OpId] = set()
    for op in forward.ops:
        if {tables.producers[tensor] for tensor in tables.reads[op]} != before:
            what = problem.graph.ops[op].name
            raise UnsuitableError(
                f"graph {name!r} is no chain: forward op {what!r} does not read the op before it"
                " and no other",
                hint="choose another --strategy",
            )
        before = {op}
    return forward


def order_with_states(tables: Tables, forward: Forward, n_states: int) -> tuple[OpId, ...]:
    """Return the order that stores up to ``n_states`` forward results beside what is at hand.

    Whatever else an op makes is retained.
    """
    places = {op: place for place, op in enumerate(forward.ops)}
    others = [TensorId(e) for e, op in enumerate(tables.producers) if op >= 0 and op not in places]
    retained: list[list[TensorId]] = []
    for t, stored in enumerate(_follow(_lay_out(tables, places), n_states)):
        made = (e for place in sorted(stored) for e in tables.makes[forward.ops[place]])
        retained.append([*made, *(e for e in others if tables.producers[e] < t)])
    return order_given(tables, retained)


@dataclass(frozen=True, slots=True)
class _Stage:
    """A stage as the chain sees it; places are those of forward ops in it."""

    link: int | None
    """The place of the stage's op; None: it is no forward op."""
    at: int
    """The lowest place that this stage or one before it has read; only where ``link`` is None."""
    needs: frozenset[int]
    """The places that it reads, and the other stages at the same place."""


def _lay_out(tables: Tables, places: Mapping[OpId, int]) -> tuple[_Stage, ...]:
    at, laid = len(places), []
    for op in range(tables.n_ops):
        makers = (tables.producers[tensor] for tensor in tables.reads[op])
        reads = frozenset(places[maker] for maker in makers if maker in places)
        link = places.get(OpId(op))
        at = at if link is not None else min((at, *reads))
        laid.append(_Stage(link, at, reads))
    return tuple(_join(laid))


def _join(laid: Sequence[_Stage]) -> Iterator[_Stage]:
    """Yield ``laid`` with the needs of whole groups: of the stages at one place."""
    groups: dict[int, frozenset[int]] = {}
    for stage in laid:
        if stage.link is None:
            groups[stage.at] = groups.get(stage.at, frozenset()) | stage.needs
    for stage in laid:
        yield replace(stage, needs=groups.get(stage.at, frozenset()))


def _follow(stages: Sequence[_Stage], n_states: int) -> Iterator[Set[int]]:
    """Yield, per stage, the places whose results are retained into it."""
    goal = next((stage for stage in stages if stage.link is None), stages[-1])
    stack = [-1, *place_states(-1, goal.at, n_states + 1)]
    at, held = goal.at, goal.needs
    for stage in stages:
        if stage.link is not None:
            yield {p for p in (*stack, *goal.needs, stage.link - 1) if 0 <= p < stage.link}
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
