"""From a problem to a certified plan."""

from __future__ import annotations

import random

import pytest

from builders import op, problem, random_training, view
from checkmate.engine.min_budget import find_min_budget
from checkmate.engine.solve import run_baseline, solve
from checkmate.errors import InfeasibleError, InternalError, NotFoundError
from checkmate.folding import fold_views
from checkmate.graph import OpId
from checkmate.liveness import insert_frees
from checkmate.plan import Claim, certify
from checkmate.problem import Problem
from checkmate.schedule import count_recomputes
from checkmate.search.finding import Limits
from oracle import find_best_time

PROVE = Limits(gap=0.0)


def test_a_budget_of_exactly_one_schedule_is_held_to_the_byte() -> None:
    small = problem(
        op("a", nbytes=1), op("b", "a", nbytes=1), op("c", "a b", nbytes=1), outputs="c"
    )
    plan = solve(small, 3, "auto", PROVE)
    assert plan.peak.nbytes == 3
    with pytest.raises(InfeasibleError, match="'c' alone needs 3 B"):
        solve(small, 2, "auto", PROVE)


def test_the_recompute_that_is_chosen_is_the_cheapest() -> None:
    # Linear, Add and GELU: dropping either activation is enough; Add is cheap to run again.
    small = problem(
        op("linear", "x", nbytes=4, time_ns=100), op("add", "linear", nbytes=4, time_ns=2),
        op("gelu", "add", nbytes=4, time_ns=9), op("out", "gelu", nbytes=1, time_ns=1),
        op("dgelu", "out add", nbytes=4, time_ns=9), op("dadd", "dgelu linear", nbytes=1),
        outputs="dadd", resident={"x": 1},
    )  # fmt: skip
    budget_nbytes = 13
    assert run_baseline(small).peak.nbytes > budget_nbytes
    plan = solve(small, budget_nbytes, "auto", PROVE)
    assert plan.time_ns == find_best_time(small, budget_nbytes)
    assert plan.claim.termination == "optimal"
    assert count_recomputes(plan.schedule.order) == 1


@pytest.mark.parametrize("seed", range(40))
def test_what_auto_returns_fits_and_is_bounded(seed: int) -> None:
    rng = random.Random(seed)
    small = random_training(rng, 4)
    budget_nbytes = int(run_baseline(small).peak.nbytes * rng.choice((0.95, 0.85, 0.75)))
    try:
        plan = solve(small, budget_nbytes, "auto", PROVE)
    except (InfeasibleError, NotFoundError):
        assert find_best_time(fold_views(small).folded, budget_nbytes) is None
        return
    best_ns = find_best_time(fold_views(small).folded, budget_nbytes)
    assert plan.peak.nbytes <= budget_nbytes
    assert best_ns is None or plan.time_ns <= best_ns
    assert plan.claim.bound_ns <= plan.time_ns


@pytest.mark.parametrize("strategy", ["keep-all", "greedy", "exact", "ap-sqrt", "auto"])
def test_enough_memory_needs_no_recompute(strategy: str) -> None:
    small = problem(op("a", time_ns=3), view("v", "a", time_ns=2), op("b", "v"), outputs="b")
    plan = solve(small, 10, strategy, PROVE)
    assert plan.time_ns == plan.claim.bound_ns == 6
    assert plan.gap == 0


def shaped() -> Problem:
    """Return a problem in which the shape of a view may go before the view is read."""
    return problem(
        op("a", nbytes=4), op("shape", nbytes=2), view("v", "a", "shape"), op("b", "v", nbytes=3),
        op("c", "b", nbytes=1),
        outputs="c",
    )  # fmt: skip


def test_a_shape_is_not_held_too_long() -> None:
    plan = solve(shaped(), 7, "auto", Limits())
    assert (plan.peak.nbytes, plan.claim.termination) == (7, "optimal")


def test_what_does_not_fit_without_the_shape_either_is_infeasible() -> None:
    with pytest.raises(InfeasibleError, match="fits in 6 B"):
        solve(shaped(), 6, "auto", Limits())


def test_holding_a_shape_too_long_proves_nothing() -> None:
    small = problem(
        op("a", nbytes=4), op("shape", nbytes=2), view("v", "a", "shape"), op("b", "v", nbytes=2),
        op("c", "b a", nbytes=2),
        outputs="c",
    )  # fmt: skip
    with pytest.raises(NotFoundError, match="no schedule found that fits in 7 B"):
        solve(small, 7, "auto", Limits())


def test_no_bound_is_said_of_a_shape_held_too_long() -> None:
    small = problem(
        op("a", nbytes=4), op("big", "a", nbytes=3, time_ns=9), op("shape", "big", nbytes=3),
        view("v", "a", "shape"), op("b", "v", nbytes=3), op("c", "b big", nbytes=1),
        outputs="c",
    )  # fmt: skip
    plan = solve(small, run_baseline(small).peak.nbytes, "auto", Limits(gap=0.0))
    assert (plan.time_ns, plan.claim.bound_ns) == (14, 14)


def test_no_smallest_budget_is_said_of_a_shape_held_too_long() -> None:
    found = find_min_budget(shaped(), Limits())
    assert (found.nbytes, found.bound_nbytes) == (7, 7)


def test_a_lie_about_the_peak_is_found_out() -> None:
    small = problem(op("a", nbytes=4), op("b", "a", nbytes=4), outputs="b")
    schedule = insert_frees(small.graph, [OpId(0), OpId(1)])
    claim = Claim("liar", "all-schedules", 2, "optimal")
    assert certify(small, schedule, 8, claim).time_ns == 2
    with pytest.raises(InternalError, match="schedule of 8 B for a budget of 7 B"):
        certify(small, schedule, 7, claim)


def test_a_lie_about_the_bound_is_found_out() -> None:
    small = problem(op("a"), outputs="a")
    schedule = insert_frees(small.graph, [OpId(0)])
    with pytest.raises(InternalError, match="less than 2 ns, but its own takes 1 ns"):
        certify(small, schedule, 9, Claim("liar", "all-schedules", 2, "optimal"))
