"""Whether anything fits at all."""

from __future__ import annotations

import random

import pytest

from builders import chain, op, problem, random_training
from checkmate.errors import NotFoundError
from checkmate.folding import fold_views
from checkmate.liveness import insert_frees
from checkmate.problem import Problem
from checkmate.search.exhaust import find_any_order
from checkmate.simulate import simulate
from oracle import find_best_time


def test_one_byte_less_than_the_smallest_budget_is_proved_too_small() -> None:
    small = chain(4, 2, 7, 1)
    assert find_any_order(small, 8) is None
    assert find_any_order(small, 9) == (0, 1, 2, 3)


def test_what_a_recompute_makes_room_for_is_found() -> None:
    small = problem(
        op("a", nbytes=2), op("b", "a", nbytes=1), op("c", "b", nbytes=4), op("d", "c", nbytes=1),
        op("e", "a d", nbytes=1), outputs="e",
    )  # fmt: skip
    assert find_any_order(small, 5) == (0, 1, 2, 3, 0, 4)
    assert find_any_order(small, 4) is None


def test_an_op_that_may_run_once_is_not_run_again() -> None:
    small = problem(
        op("a", nbytes=2, recomputable=False), op("b", "a", nbytes=1), op("c", "b", nbytes=4),
        op("d", "c", nbytes=1), op("e", "a d", nbytes=1), outputs="e",
    )  # fmt: skip
    assert find_any_order(small, 6) is None


def late() -> Problem:
    """Return a problem in which ``big`` fits only after the last reader of what runs once."""
    return problem(
        op("once", nbytes=4, recomputable=False), op("big", nbytes=6), op("read", "once"),
        op("end", "big read", nbytes=1),
        outputs="end",
    )  # fmt: skip


def test_an_op_may_run_later_than_its_turn() -> None:
    assert find_any_order(late(), 8) == (0, 2, 1, 3)
    assert find_any_order(late(), 7) is None


def test_an_op_that_runs_once_may_not_run_late() -> None:
    small = problem(
        op("once", nbytes=4, recomputable=False), op("big", nbytes=6, recomputable=False),
        op("read", "once"), op("end", "big read", nbytes=1), outputs="end",
    )  # fmt: skip
    assert find_any_order(small, 10) is None
    assert find_any_order(small, 11) == (0, 1, 2, 3)


def test_too_many_states_prove_nothing() -> None:
    names = [f"f{i}" for i in range(20)]
    wide = problem(*map(op, names), op("sum", " ".join(names)), outputs="sum")
    with pytest.raises(NotFoundError, match="not exhausted"):
        find_any_order(wide, 20)


@pytest.mark.parametrize("seed", range(60))
def test_it_finds_something_wherever_brute_force_does(seed: int) -> None:
    rng = random.Random(seed)
    small = fold_views(random_training(rng, 3)).folded
    in_order = simulate(small, insert_frees(small.graph, range(len(small.graph.ops))))
    budget_nbytes = in_order.peak.nbytes - rng.randint(0, 8)
    order = find_any_order(small, budget_nbytes)
    if order is None:
        assert find_best_time(small, budget_nbytes) is None
    else:
        assert simulate(small, insert_frees(small.graph, order)).peak.nbytes <= budget_nbytes
