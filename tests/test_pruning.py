"""Recomputes that are taken back, and the memory of an order by position."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from builders import op, problem, random_training, training_chain
from checkmate.errors import ScheduleError
from checkmate.folding import fold_views
from checkmate.graph import OpId
from checkmate.heuristics.pruning import Layout, prune
from checkmate.heuristics.tables import make_tables
from checkmate.problem import Problem
from orders import names, run


def ids(*numbers: int) -> list[OpId]:
    return [OpId(number) for number in numbers]


def make_order(rng: random.Random, small: Problem) -> list[OpId]:
    """Return the ops in order with a few recomputes, each right before some op."""
    order: list[OpId] = []
    for stage in range(len(small.graph.ops)):
        may = [OpId(i) for i in range(stage) if small.graph.ops[i].recomputable]
        order += sorted(rng.sample(may, k=min(len(may), rng.choice((0, 0, 1, 3)))))
        order.append(OpId(stage))
    return order


def can_run(small: Problem, order: Sequence[OpId], budget_nbytes: int) -> bool:
    try:
        return run(small, order).peak.nbytes <= budget_nbytes
    except ScheduleError:
        return False


def test_a_recompute_goes_where_its_tensor_can_be_retained() -> None:
    small = problem(op("a"), op("b", "a"), op("c", "b"), op("d", "c a"), outputs="d")
    again = ids(0, 1, 2, 0, 3)
    assert names(small, prune(make_tables(small), again, 3)) == "a b c d"


def test_a_recompute_stays_where_retaining_needs_more_than_the_budget() -> None:
    small = problem(op("a"), op("b", "a", nbytes=2), op("c", "b"), op("d", "c a"), outputs="d")
    again = tuple(ids(0, 1, 2, 0, 3))
    assert prune(make_tables(small), again, 3) == again


def test_recomputes_that_were_there_for_another_go_with_it() -> None:
    small = problem(op("a"), op("b", "a"), op("c", "b"), op("d", "c b"), outputs="d")
    assert names(small, prune(make_tables(small), ids(0, 1, 2, 0, 1, 3), 3)) == "a b c d"


def test_they_make_the_room_that_retaining_needs() -> None:
    small = problem(
        op("a", nbytes=4, workspace_nbytes=2), op("b", "a"), op("big", nbytes=3), op("c", "big"),
        op("d", "c b"), outputs="d",
    )  # fmt: skip
    assert names(small, prune(make_tables(small), ids(0, 1, 2, 3, 0, 1, 4), 7)) == "a b big c d"


def test_the_recompute_that_saves_most_time_for_its_memory_goes_first() -> None:
    small = problem(
        op("slow", time_ns=5), op("quick", time_ns=1), op("big", nbytes=3), op("c", "big"),
        op("d", "c slow quick"), outputs="d",
    )  # fmt: skip
    order = ids(0, 1, 2, 3, 0, 1, 4)
    assert names(small, prune(make_tables(small), order, 5)) == "slow quick big c quick d"


def test_a_recompute_that_nothing_reads_goes_whatever_the_budget() -> None:
    small = problem(op("a"), op("b", "a"), op("c", "b"), outputs="c")
    assert names(small, prune(make_tables(small), ids(0, 1, 0, 2), 3)) == "a b c"


def test_an_output_that_is_made_again_can_be_retained_instead() -> None:
    small = problem(op("a"), op("b"), op("c", "b"), outputs="a c")
    assert names(small, prune(make_tables(small), ids(0, 1, 2, 0), 3)) == "a b c"


@pytest.mark.parametrize("seed", range(60))
def test_memory_by_position_is_what_the_judge_finds(seed: int) -> None:
    rng = random.Random(seed)
    small = fold_views(random_training(rng, 6)).folded
    order = make_order(rng, small)
    assert Layout(make_tables(small), order).used_nbytes.max() == run(small, order).peak.nbytes


@pytest.mark.parametrize("seed", range(60))
def test_no_single_recompute_can_be_taken_from_a_pruned_order(seed: int) -> None:
    rng = random.Random(seed)
    small = fold_views(random_training(rng, 6)).folded
    order = make_order(rng, small)
    peak_nbytes = run(small, order).peak.nbytes
    pruned = prune(make_tables(small), order, peak_nbytes)
    assert can_run(small, pruned, peak_nbytes)
    for at, again in enumerate(pruned):
        if again in pruned[:at]:
            assert not can_run(small, (*pruned[:at], *pruned[at + 1 :]), peak_nbytes)


def test_pruning_undoes_every_recompute_when_there_is_room() -> None:
    small = training_chain(5)
    order = make_order(random.Random(3), small)
    assert prune(make_tables(small), order, 100) == tuple(range(11))
