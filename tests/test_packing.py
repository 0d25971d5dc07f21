"""Orders made to fit in the arena, by hand and against the judge."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from builders import op, problem, random_training, scale
from checkmate.arena import is_within
from checkmate.engine.solve import run_baseline
from checkmate.folding import fold_views
from checkmate.graph import OpId, TensorId
from checkmate.heuristics.arena_tables import fill, find_deaths, make_arena_tables
from checkmate.heuristics.greedy import POLICIES
from checkmate.heuristics.making_room import drop_recomputes, make_room, sum_ns
from checkmate.heuristics.packing import PackingLimits, pack
from checkmate.heuristics.tables import make_tables
from checkmate.heuristics.trying import try_policy
from checkmate.liveness import insert_frees
from checkmate.placement import ArenaRules, ArenaSetup
from checkmate.problem import Problem
from checkmate.schedule import Compute, Free

KINDS = ("exact", "whole")


def random_problem(rng: random.Random, n_forward: int, region: str) -> Problem:
    """Return a problem with an arena: some in place, some workspace in blocks, some resident."""
    drawn = scale(random_training(rng, n_forward), rng.choice((100, 256, 1000)))
    graph = drawn.graph
    in_place = {
        node.outputs[0]: node.inputs[0]
        for node in graph.ops
        if node.inputs
        and graph.tensors[node.outputs[0]].source is None
        and graph.tensors[node.inputs[0]].nbytes >= graph.tensors[node.outputs[0]].nbytes
        and node.outputs[0] not in graph.outputs
        and rng.random() < 0.5
    }
    rules = ArenaRules(
        ArenaSetup(region),  # type: ignore[arg-type]
        (TensorId(0),) if rng.random() < 0.5 else (),
        in_place,
        frozenset(OpId(i) for i in range(len(graph.ops)) if rng.random() < 0.5),
    )
    return replace(drawn, arena=rules)


def random_order(rng: random.Random, folded: Problem, budget_nbytes: int) -> tuple[OpId, ...]:
    """Return file order, or one that recomputes."""
    if rng.random() < 0.3:
        return tuple(OpId(i) for i in range(len(folded.graph.ops)))
    policy = rng.choice(POLICIES)
    return try_policy(make_tables(folded), policy, budget_nbytes, budget_nbytes * 9).order


@given(st.integers(0, 100_000), st.sampled_from(KINDS))
@settings(max_examples=300, deadline=None)
def test_an_order_fits_when_the_judge_says_so(seed: int, region: str) -> None:
    rng = random.Random(seed)
    drawn = random_problem(rng, 6, region)
    folding = fold_views(drawn)
    total_nbytes = sum(tensor.nbytes for tensor in drawn.graph.tensors)
    budget_nbytes = int(total_nbytes * rng.uniform(0.2, 1.0))
    order = random_order(rng, folding.folded, budget_nbytes)
    schedule = insert_frees(drawn.graph, folding.unfold(order))
    fits = is_within(drawn, schedule, budget_nbytes)
    event(f"fits: {fits}")
    tables = make_arena_tables(folding.folded, budget_nbytes)
    assert (fill(tables, order).excess_nbytes == 0) == fits
    assert (fill(tables, order, stops=True).excess_nbytes == 0) == fits


def test_what_room_was_made_in_fits_a_thousand_times() -> None:
    rng = random.Random(0)
    n_found = n_grown = 0
    for number in range(1000):
        drawn = random_problem(rng, 4, KINDS[number % 2])
        folding = fold_views(drawn)
        in_order = tuple(OpId(i) for i in range(len(folding.folded.graph.ops)))
        budget_nbytes = int(run_baseline(drawn).peak.nbytes * rng.uniform(0.9, 1.2))
        tables = make_arena_tables(folding.folded, budget_nbytes)
        order = make_room(tables, in_order)
        if order is not None:
            relieved = drop_recomputes(tables, order)
            schedule = insert_frees(drawn.graph, folding.unfold(relieved))
            assert is_within(drawn, schedule, budget_nbytes)
            assert sum_ns(tables.tables, relieved) <= sum_ns(tables.tables, order)
            n_found += 1
            n_grown += len(relieved) > len(in_order)
    assert n_found > 200
    assert n_grown > 50


@pytest.mark.parametrize("region", KINDS)
@pytest.mark.parametrize("seed", range(10))
def test_what_is_packed_fits_and_passes_who_decides_last(seed: int, region: str) -> None:
    rng = random.Random(seed)
    drawn = random_problem(rng, 4, region)
    folded = fold_views(drawn).folded
    in_order = tuple(OpId(i) for i in range(len(folded.graph.ops)))
    budget_nbytes = run_baseline(drawn).peak.nbytes
    refused: list[tuple[OpId, ...]] = []

    def refuse_first(order: tuple[OpId, ...]) -> bool:
        refused.append(order)
        return order != refused[0]

    tables = make_arena_tables(folded, budget_nbytes)
    free = pack(folded, budget_nbytes, (in_order,), PackingLimits())
    order = pack(folded, budget_nbytes, (in_order,), PackingLimits(), refuse_first)
    assert free is None or not fill(tables, free).excess_nbytes
    assert order is None or (order != refused[0] and not fill(tables, order).excess_nbytes)


@pytest.mark.parametrize("seed", range(20))
def test_tensors_die_where_frees_stand(seed: int) -> None:
    rng = random.Random(seed)
    folded = fold_views(random_problem(rng, 8, "whole")).folded
    budget_nbytes = folded.graph.resident_nbytes + 2000
    order = random_order(rng, folded, budget_nbytes)
    frees: list[set[TensorId]] = []
    for step in insert_frees(folded.graph, order).instructions:
        if isinstance(step, Compute):
            frees.append(set())
        if isinstance(step, Free):
            frees[-1].add(step.tensor)
    assert [set(dying) for dying in find_deaths(make_tables(folded), order)] == frees


def test_neighbours_are_evicted_rather_than_what_is_cheapest() -> None:
    # a b c d lie in this order. When e is made, d is gone, and e fits there and where c is. It
    # takes less time to make a again, but there is too little room where a is.
    graph = problem(
        op("a", nbytes=512, time_ns=1),
        op("b", nbytes=512, time_ns=50),
        op("c", nbytes=512, time_ns=5),
        op("d", nbytes=512, time_ns=50),
        op("abcd-", "a b c d", nbytes=0),
        op("e", nbytes=1024),
        op("e-", "e", nbytes=0),
        op("abc-", "a b c", nbytes=0),
        outputs="abc-",
    )
    whole = replace(graph, arena=ArenaRules())
    in_order = tuple(OpId(i) for i in range(8))
    order = pack(whole, 2048, (in_order,), PackingLimits())
    assert order is not None
    assert sorted(order) == sorted((*in_order, OpId(2)))
