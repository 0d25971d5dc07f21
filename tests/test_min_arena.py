"""The smallest budget in an arena: found below what the fewest bytes take there."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from checkmate.arena import count_budget_nbytes, is_within
from checkmate.engine.min_arena import Packed, count_as_is, pack_smallest
from checkmate.engine.min_budget import find_min_budget
from checkmate.engine.solve import solve
from checkmate.folding import fold_views
from checkmate.graph import OpId
from checkmate.heuristics.greedy import find_smallest_budget
from checkmate.liveness import insert_frees
from checkmate.problem import Problem
from checkmate.search.finding import Limits
from checkmate.simulate import simulate
from test_packing import random_problem

UNTIMED = Limits(gap=0.0)
SEEDS = range(8)


def draw(seed: int, region: str = "whole") -> Problem:
    return random_problem(random.Random(seed), 12, region)


def find_start(drawn: Problem) -> tuple[OpId, ...]:
    """Return an order that takes few bytes."""
    return find_smallest_budget(fold_views(drawn).folded, 4)[1]


def count(drawn: Problem, order: tuple[OpId, ...]) -> int:
    schedule = insert_frees(drawn.graph, fold_views(drawn).unfold(order))
    return max(simulate(drawn, schedule).peak.nbytes, count_budget_nbytes(drawn, schedule))


def runs(drawn: Problem, packed: Packed) -> bool:
    schedule = insert_frees(drawn.graph, fold_views(drawn).unfold(packed.order))
    return is_within(drawn, schedule, packed.nbytes)


def shrink(drawn: Problem) -> Packed:
    return pack_smallest(fold_views(drawn), find_start(drawn), UNTIMED, count_as_is)


@pytest.mark.parametrize("region", ["whole", "exact"])
@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_found_runs_in_its_budget(seed: int, region: str) -> None:
    drawn = draw(seed, region)
    packed = shrink(drawn)
    assert runs(drawn, packed)
    assert packed.nbytes <= count(drawn, find_start(drawn))


def test_it_is_often_below_what_few_bytes_take() -> None:
    problems = list(map(draw, SEEDS))
    shares = [shrink(drawn).nbytes / count(drawn, find_start(drawn)) for drawn in problems]
    assert min(shares) < 0.95


def test_what_writing_adds_is_counted() -> None:
    drawn, added_nbytes = draw(2), 4096

    def count_written(order: tuple[OpId, ...], nbytes: int) -> int:
        return max(nbytes, count(drawn, order) + added_nbytes)

    packed = pack_smallest(fold_views(drawn), find_start(drawn), UNTIMED, count_written)
    assert count_written(packed.order, packed.nbytes) == packed.nbytes
    assert packed.nbytes > shrink(drawn).nbytes


def test_without_time_it_is_the_start() -> None:
    drawn = draw(1)
    start = find_start(drawn)
    late = replace(UNTIMED, time_s=0.0)
    packed = pack_smallest(fold_views(drawn), start, late, count_as_is)
    assert packed == Packed(start, count(drawn, start))


def test_the_smallest_budget_of_a_problem_with_an_arena_is_packed() -> None:
    drawn = random_problem(random.Random(5), 6, "whole")
    found = find_min_budget(drawn, UNTIMED)
    assert runs(drawn, Packed(found.order, found.nbytes))
    assert found.bound_nbytes <= found.nbytes


@pytest.mark.parametrize(("seed", "region"), [(0, "exact"), (7, "whole")])
def test_a_search_finds_a_plan_in_the_smallest_budget(seed: int, region: str) -> None:
    drawn = draw(seed, region)
    order = find_smallest_budget(fold_views(drawn).folded, 8)[1]
    smallest = pack_smallest(fold_views(drawn), order, UNTIMED, count_as_is)
    plan = solve(drawn, smallest.nbytes, "greedy", UNTIMED)
    assert plan.peak.nbytes <= smallest.nbytes
