"""Local search: what it yields fits, gets better, and beats what it began from."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from builders import op, problem, random_training, training_chain
from checkmate.errors import NotFoundError
from checkmate.folding import fold_views
from checkmate.graph import OpId
from checkmate.heuristics.editing import find_keys
from checkmate.heuristics.local_search import Manner, search_locally
from checkmate.heuristics.tables import make_tables
from checkmate.milp.encode import is_frontier_advancing
from checkmate.problem import Problem
from checkmate.search.finding import Limits
from checkmate.search.strategies import STRATEGIES
from oracle import find_best_time
from orders import random_layered, run

LIMITS = Limits(gap=0.0)


def in_order(small: Problem) -> tuple[OpId, ...]:
    return tuple(OpId(k) for k in range(len(small.graph.ops)))


def best_of(small: Problem, budget_nbytes: int, *, keeps_turns: bool) -> tuple[OpId, ...]:
    tables = make_tables(small)
    manner = Manner(5, keeps_turns=keeps_turns)
    *_, best = search_locally(tables, budget_nbytes, in_order(small), manner)
    return best.find_order(tables)


def delayed() -> Problem:
    """Return a problem in which one op fills memory though nothing reads it before the end."""
    return problem(
        op("early", nbytes=4), op("a", nbytes=4), op("b", "a", nbytes=3), op("c", "b", nbytes=1),
        op("end", "early c", nbytes=1),
        outputs="end",
    )  # fmt: skip


def test_an_op_that_nothing_reads_for_long_runs_late_instead_of_twice() -> None:
    small = delayed()
    order = best_of(small, 8, keeps_turns=False)
    assert run(small, in_order(small)).peak.nbytes == 11
    assert run(small, order).peak.nbytes <= 8
    assert sorted(order) == [0, 1, 2, 3, 4]
    assert order.index(OpId(0)) == 3


def test_with_turns_kept_it_runs_twice() -> None:
    small = delayed()
    order = best_of(small, 8, keeps_turns=True)
    assert order == (0, 1, 2, 3, 0, 4)


@pytest.mark.parametrize(("budget_nbytes", "best_ns"), [(4, 26), (5, 22), (6, 21)])
def test_it_finds_the_optima_of_the_linear_network(budget_nbytes: int, best_ns: int) -> None:
    small = training_chain(8)
    order = best_of(small, budget_nbytes, keeps_turns=True)
    simulation = run(small, order)
    assert simulation.peak.nbytes <= budget_nbytes
    assert simulation.time_ns == best_ns
    assert is_frontier_advancing(small.graph, order)


@pytest.mark.parametrize("seed", range(20))
def test_it_is_as_good_as_every_frontier_advancing_schedule_of_a_layered_graph(seed: int) -> None:
    rng = random.Random(seed)
    small = random_layered(rng, 9)
    budget_nbytes = run(small, in_order(small)).peak.nbytes * 3 // 4
    best_ns = find_best_time(small, budget_nbytes)
    simulation = run(small, best_of(small, budget_nbytes, keeps_turns=False))
    if best_ns is not None:
        assert simulation.peak.nbytes <= budget_nbytes
        assert simulation.time_ns <= best_ns


@pytest.mark.parametrize("seed", range(12))
def test_each_order_runs_as_it_is_described_and_is_no_worse_than_the_last(seed: int) -> None:
    rng = random.Random(seed)
    small = fold_views(random_training(rng, 5)).folded
    tables = make_tables(small)
    budget_nbytes = run(small, in_order(small)).peak.nbytes * 2 // 3
    found = list(search_locally(tables, budget_nbytes, in_order(small), Manner(1)))
    for before, after in pairwise(found):
        assert after <= before
    simulation = run(small, found[-1].find_order(tables))
    assert simulation.time_ns == found[-1].time_ns
    assert (simulation.peak.nbytes > budget_nbytes) == (found[-1].excess_nbytes > 0)


def test_the_same_input_gives_the_same_order() -> None:
    small = random_layered(random.Random(3), 15)
    budget_nbytes = run(small, in_order(small)).peak.nbytes * 2 // 3
    first = best_of(small, budget_nbytes, keeps_turns=False)
    assert first == best_of(small, budget_nbytes, keeps_turns=False)


def test_orders_have_keys_when_their_last_op_runs_once_and_last() -> None:
    assert find_keys(3, (OpId(0), OpId(1), OpId(0), OpId(2))) == (0, 4, 6, 8)
    assert find_keys(3, (OpId(1), OpId(0), OpId(2))) == (4, 6, 8)
    assert find_keys(3, (OpId(0), OpId(2), OpId(1))) is None
    assert find_keys(3, (OpId(0), OpId(1), OpId(2), OpId(2))) is None
    assert find_keys(0, ()) is None


def test_anneal_is_a_strategy_whose_schedule_fits() -> None:
    small = delayed()
    finding = STRATEGIES["anneal"](small, 8, LIMITS)
    assert run(small, finding.order).peak.nbytes <= 8
    assert (finding.claim.bound_ns, finding.claim.termination) == (5, "optimal")


def test_anneal_says_when_nothing_was_found() -> None:
    small = problem(
        op("a", nbytes=3), op("b", nbytes=3), op("a2", "a"), op("b2", "b"), op("d", nbytes=6),
        op("d2", "d"), op("c", "a2 b2 d2"),
        outputs="c",
    )  # fmt: skip
    with pytest.raises(NotFoundError):
        STRATEGIES["anneal"](small, 7, Limits(gap=0.0, time_s=0.3))
