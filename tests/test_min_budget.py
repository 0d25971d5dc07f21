"""The smallest budget: never below what trying everything finds, and a plan in it."""

from __future__ import annotations

import random

import pytest

from builders import op, problem, random_training, training_chain, view
from chain_oracle import find_best_chain
from chain_problems import draw_chain
from checkmate.engine.min_budget import find_min_budget, quote_min_budget
from checkmate.engine.solve import Hints, run_baseline, solve
from checkmate.errors import InfeasibleError, NotFoundError
from checkmate.problem import Problem
from checkmate.search.claims import run_order
from checkmate.search.finding import Limits
from checkmate.search.smallest import find_smallest
from oracle import find_best_time

UNTIMED = Limits(gap=0.0)


def find_least_chain_budget(small: Problem) -> int:
    """Return the smallest budget of a chain of stages, by trying all of them."""
    budget_nbytes = run_baseline(small).peak.nbytes
    while find_best_chain(small, budget_nbytes - 1) is not None:
        budget_nbytes -= 1
    return budget_nbytes


@pytest.mark.parametrize("seed", [27, 47, 103, 123, 175, 199])
def test_no_bound_is_above_the_smallest_budget_of_a_chain_of_stages(seed: int) -> None:
    small, _ = draw_chain(seed)
    least_nbytes = find_least_chain_budget(small)
    found = find_smallest(small, UNTIMED)
    assert run_order(small, found.order).peak.nbytes == found.nbytes <= least_nbytes
    assert found.bound_nbytes <= found.chain_bound_nbytes <= least_nbytes
    assert found.bound_nbytes <= found.nbytes


def test_a_schedule_beyond_those_that_the_programs_know_is_found() -> None:
    # What waits for f to run late takes 101 bytes; in its turn, at least 131.
    small = problem(
        op("a", "p", nbytes=5), op("b", "a", nbytes=13), op("c", "b", nbytes=40),
        op("d", "c b a", nbytes=1, workspace_nbytes=1),
        op("e", "d b c p", nbytes=5, workspace_nbytes=30),
        op("f", "b", nbytes=40, workspace_nbytes=30),
        outputs="e f c", resident={"p": 3},
    )  # fmt: skip
    found = find_smallest(small, UNTIMED)
    assert run_order(small, found.order).peak.nbytes == 101
    assert (found.nbytes, found.bound_nbytes) == (101, 101)
    assert find_best_time(small, 130) is None
    assert find_best_time(small, 131) is not None


def test_no_program_runs_where_the_bound_for_all_schedules_is_reached() -> None:
    # While big is made, a chain of stages has to keep a: it is read later in the forward pass.
    small = problem(
        op("a", "x", nbytes=4), op("wide", "a", nbytes=1, workspace_nbytes=1),
        op("big", "wide", nbytes=6), op("y", "big", nbytes=1), op("z", "y a", nbytes=1),
        op("loss", "z", nbytes=1), op("g", "loss z", nbytes=1, backward=True),
        outputs="g", resident={"x": 1},
    )  # fmt: skip
    found = find_smallest(small, UNTIMED)
    assert (found.nbytes, found.bound_nbytes, found.chain_bound_nbytes) == (8, 8, 8)
    assert find_best_time(small, 8) is not None
    assert find_least_chain_budget(small) == 12


@pytest.mark.parametrize("seed", (1, 4, 16, 18))
def test_the_bound_for_all_schedules_holds(seed: int) -> None:
    small = random_training(random.Random(seed), 3)
    found = find_min_budget(small, UNTIMED)
    plan = solve(small, found.nbytes, "auto", UNTIMED, Hints(found.order))
    assert found.bound_nbytes <= plan.peak.nbytes <= found.nbytes
    if found.bound_nbytes > 1:
        with pytest.raises(InfeasibleError):
            solve(small, found.bound_nbytes - 1, "auto", UNTIMED)


def test_the_linear_network_needs_three_tensors() -> None:
    found = find_min_budget(training_chain(8), UNTIMED)
    assert (found.nbytes, found.bound_nbytes) == (3, 3)
    assert found.describe(training_chain(8)).endswith("binds; nothing fits in less")


def test_views_do_not_count() -> None:
    small = problem(op("a", nbytes=3), view("v", "a"), op("b", "v", nbytes=2), outputs="b")
    found = find_min_budget(small, UNTIMED)
    assert (found.nbytes, found.bound_nbytes) == (5, 5)


def test_a_message_has_the_smallest_budget_and_both_bounds() -> None:
    small = random_training(random.Random(3), 12)
    budget_nbytes = run_baseline(small).peak.nbytes // 4
    with pytest.raises((InfeasibleError, NotFoundError)) as caught:
        solve(small, budget_nbytes, "auto", UNTIMED)
    quoted = quote_min_budget(small, UNTIMED)
    assert caught.value.hint is not None
    assert f"known to work is {quoted.nbytes:,} B" in caught.value.hint
    assert "nothing fits in less" in caught.value.hint


def test_a_start_is_never_lost() -> None:
    small = random_training(random.Random(3), 12)
    found = find_min_budget(small, UNTIMED)
    for strategy in ("auto", "keep-all", "chen-sqrt"):
        plan = solve(small, found.nbytes, strategy, Limits(gap=9.0), Hints(found.order))
        assert plan.peak.nbytes <= found.nbytes
