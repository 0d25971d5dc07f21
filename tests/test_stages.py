"""The search for chains of stages: what it finds, what it claims, and what it refuses."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from builders import op, problem, random_training, training_chain, view
from chain_oracle import find_best_chain
from chain_problems import draw_chain
from checkmate.errors import InfeasibleError, NoneInSpaceError, NotFoundError
from checkmate.folding import fold_views
from checkmate.formats.problem_json import read_problem
from checkmate.graph import OpId
from checkmate.liveness import insert_frees
from checkmate.milp.chain import is_chain_of_stages
from checkmate.plan import Plan, certify
from checkmate.problem import Problem
from checkmate.search.finding import Finding, Limits
from checkmate.search.stages import solve_stages
from checkmate.search.strategies import STRATEGIES
from checkmate.simulate import simulate
from interrupting import interrupt_a_solver, needs_proc

PROVE = Limits(gap=0.0)
INSTANCES = Path(__file__).parents[2] / "shared" / "instances"


def plan_of(small: Problem, budget_nbytes: int, finding: Finding) -> Plan:
    return certify(small, insert_frees(small.graph, finding.order), budget_nbytes, finding.claim)


def peak_of(small: Problem) -> int:
    in_order = [OpId(i) for i in range(len(small.graph.ops))]
    return simulate(small, insert_frees(small.graph, in_order)).peak.nbytes


def draw_hard(seed: int) -> tuple[Problem, int, int]:
    """Return a random problem, a budget that calls for recomputes, and the best time in it."""
    for other in range(100 * seed, 100 * seed + 100):
        small, budget_nbytes = draw_chain(other)
        best = find_best_chain(small, budget_nbytes)
        if best is not None and best[0] > small.costs.total_ns:
            return small, budget_nbytes, best[0]
    raise AssertionError(seed)


@pytest.mark.parametrize("seed", range(12))
def test_the_search_finds_what_trying_all_chains_of_stages_finds(seed: int) -> None:
    small, budget_nbytes, best_ns = draw_hard(seed)
    finding = solve_stages(small, budget_nbytes, PROVE)
    assert plan_of(small, budget_nbytes, finding).time_ns == best_ns
    assert finding.claim.bound_ns == best_ns
    assert (finding.claim.space, finding.claim.termination) == ("chain-of-stages", "optimal")
    assert finding.claim.solver.name == "HiGHS"
    assert is_chain_of_stages(small.graph, finding.order)


@pytest.mark.parametrize(("budget_nbytes", "best_ns"), [(4, 26), (5, 22), (6, 21)])
def test_the_linear_network_of_the_paper_is_solved_to_its_optimum(
    budget_nbytes: int, best_ns: int
) -> None:
    finding = solve_stages(training_chain(8), budget_nbytes, PROVE)
    assert plan_of(training_chain(8), budget_nbytes, finding).time_ns == best_ns
    assert finding.claim.bound_ns == best_ns


def test_a_graph_that_fits_as_it_is_needs_no_solver() -> None:
    finding = solve_stages(training_chain(3), peak_of(training_chain(3)), PROVE)
    assert finding.order == tuple(range(7))
    assert (finding.claim.space, finding.claim.termination) == ("all-schedules", "optimal")


def test_a_view_that_nothing_reads_may_stand_among_the_gradients() -> None:
    given = problem(
        op("a", nbytes=3), op("b", "a", nbytes=3), op("loss", "b"),
        op("db", "loss b", nbytes=2, backward=True),
        op("t", "a"), view("unread", "t"),
        op("da", "db a t", backward=True),
        outputs="da",
    )  # fmt: skip
    small = fold_views(given).folded
    assert small.graph.ops[5].name == "unread"
    budget_nbytes = peak_of(small) - 1
    finding = solve_stages(small, budget_nbytes, PROVE)
    assert plan_of(small, budget_nbytes, finding).time_ns == 8


def test_a_graph_without_backward_ops_is_refused() -> None:
    small = problem(
        op("a", nbytes=4), op("b", "a", nbytes=4), op("c", "b", nbytes=4), op("d", "c a"),
        outputs="d",
    )  # fmt: skip
    with pytest.raises(NotFoundError, match="'small' has no backward ops") as caught:
        solve_stages(small, 10, PROVE)
    assert caught.value.hint == "choose another --strategy"


def test_what_fits_no_op_is_infeasible_for_all_schedules() -> None:
    with pytest.raises(InfeasibleError, match="op 'b7' alone needs 3 B"):
        solve_stages(training_chain(8), 2, PROVE)


def again_in_forward() -> tuple[Problem, int, tuple[OpId, ...]]:
    """Return a problem in whose budget something has to be made twice in the forward pass."""
    small = problem(
        op("a", "x", nbytes=4), op("wide", "a", nbytes=1, workspace_nbytes=1),
        op("big", "wide", nbytes=6), op("y", "big", nbytes=1), op("z", "y a", nbytes=1),
        op("loss", "z", nbytes=1), op("g", "loss z", nbytes=1, backward=True),
        outputs="g", resident={"x": 1},
    )  # fmt: skip
    order = (0, 1, 2, 3, 0, 4, 5, 6)
    return small, 9, tuple(OpId(k) for k in order)


def test_an_order_outside_the_space_is_returned_with_a_bound_that_holds_for_it() -> None:
    small, budget_nbytes, start = again_in_forward()
    assert not is_chain_of_stages(small.graph, start)
    with pytest.raises(NoneInSpaceError, match="no chain-of-stages schedule of 'small' fits in 9"):
        solve_stages(small, budget_nbytes, PROVE)
    finding = solve_stages(small, budget_nbytes, PROVE, start)
    assert finding.order == start
    assert (finding.claim.space, finding.claim.bound_ns) == ("all-schedules", 7)
    assert finding.claim.termination == "limit"
    assert plan_of(small, budget_nbytes, finding).time_ns == 8


def test_the_faster_of_a_start_and_the_best_chain_of_stages_is_returned() -> None:
    # While big is made, a or late has to go: a can be back for 1 in the forward pass, late for 50.
    small = problem(
        op("a", "x", nbytes=4), op("late", "x", nbytes=5, time_ns=50), op("s", "late", nbytes=1),
        op("big", "s", nbytes=6), op("y", "big", nbytes=1), op("z", "y a", nbytes=1),
        op("loss", "z", nbytes=1), op("g", "loss late z", nbytes=1, backward=True),
        outputs="g", resident={"x": 1},
    )  # fmt: skip
    inside = solve_stages(small, 16, PROVE)
    assert (inside.claim.space, inside.claim.bound_ns) == ("chain-of-stages", 107)
    outside = tuple(OpId(k) for k in (0, 1, 2, 3, 4, 0, 5, 6, 7))
    finding = solve_stages(small, 16, PROVE, outside)
    assert finding.order == outside
    assert (finding.claim.space, finding.claim.bound_ns) == ("all-schedules", 57)


def test_a_start_above_the_budget_is_not_used() -> None:
    start = [OpId(k) for k in range(17)]
    finding = solve_stages(training_chain(8), 5, PROVE, start)
    assert plan_of(training_chain(8), 5, finding).time_ns == 22


def large_training(seed: int) -> Problem:
    return fold_views(random_training(random.Random(seed), 25)).folded


def test_the_same_search_finds_the_same() -> None:
    small = fold_views(random_training(random.Random(3), 12)).folded
    budget_nbytes = peak_of(small) * 6 // 10
    limits = Limits(gap=0.0, nodes=1)
    assert solve_stages(small, budget_nbytes, limits) == solve_stages(small, budget_nbytes, limits)


def test_a_gap_is_good_enough() -> None:
    small = large_training(3)
    budget_nbytes = peak_of(small) * 6 // 10
    finding = solve_stages(small, budget_nbytes, Limits(gap=0.2))
    assert finding.claim.termination in ("gap", "optimal")
    assert plan_of(small, budget_nbytes, finding).gap <= 0.2


def test_no_time_is_enough_for_a_first_schedule() -> None:
    small = large_training(3)
    budget_nbytes = peak_of(small) * 6 // 10
    finding = solve_stages(small, budget_nbytes, Limits(gap=0.0, time_s=0.0))
    assert finding.claim.termination == "limit"
    assert plan_of(small, budget_nbytes, finding).gap > 0


@needs_proc
def test_an_interrupt_returns_what_is_in_hand() -> None:
    small = fold_views(random_training(random.Random(2), 120)).folded
    budget_nbytes = peak_of(small) // 2
    # Only the programs take long, and what comes before them would be lost.
    start = STRATEGIES["greedy"](small, budget_nbytes, Limits()).order
    cancel = interrupt_a_solver()
    finding = solve_stages(small, budget_nbytes, Limits(gap=0.0, time_s=60.0), start)
    cancel()
    assert finding.claim.termination == "interrupted"
    assert plan_of(small, budget_nbytes, finding).gap > 0


@pytest.mark.parametrize("seed", [0, 1])
def test_auto_bounds_large_training_graphs(seed: int) -> None:
    small = fold_views(random_training(random.Random(seed), 110)).folded
    assert len(small.graph.ops) > 200
    budget_nbytes = peak_of(small) * 7 // 10
    finding = STRATEGIES["auto"](small, budget_nbytes, Limits(gap=0.02, time_s=6.0))
    greedy = STRATEGIES["greedy"](small, budget_nbytes, Limits())
    plan = plan_of(small, budget_nbytes, finding)
    assert plan.time_ns <= plan_of(small, budget_nbytes, greedy).time_ns
    assert finding.claim.space == "chain-of-stages"
    assert small.costs.total_ns < finding.claim.bound_ns <= plan.time_ns


def test_auto_keeps_what_the_greedy_finds_where_there_is_no_backward_pass() -> None:
    small = problem(
        *(op(f"o{k}", f"o{k - 1}" if k else "", nbytes=5) for k in range(210)),
        op("again", "o209 o0", nbytes=1), outputs="again",
    )  # fmt: skip
    finding = STRATEGIES["auto"](small, 11, Limits(gap=0.0))
    assert finding.claim.strategy == "greedy"
    assert plan_of(small, 11, finding).time_ns == 212


@pytest.mark.skipif(not INSTANCES.is_dir(), reason=f"needs the published instances in {INSTANCES}")
@pytest.mark.parametrize(
    ("name", "percent", "most_overhead", "least_bound"),
    [
        ("unet-b32", 70, 2.98, 2.83), ("unet-b32", 50, 6.98, 6.30),
        ("mobilenet-b512", 50, 1.79, 1.61), ("mobilenet-b512", 40, 2.60, 2.33),
        ("resnet50-b256", 50, 1.63, 1.48), ("resnet50-b256", 40, 2.37, 2.18),
    ],
)  # fmt: skip
def test_the_published_instances_are_solved_to_one_percent(
    name: str, percent: int, most_overhead: float, least_bound: float
) -> None:
    instance = read_problem(INSTANCES / f"{name}-v100.json")
    budget_nbytes = peak_of(instance) * percent // 100
    finding = solve_stages(instance, budget_nbytes, Limits(gap=0.01, time_s=60.0))
    plan = plan_of(instance, budget_nbytes, finding)
    total_ns = instance.costs.total_ns
    assert plan.gap <= 0.01
    assert 100 * (plan.time_ns / total_ns - 1) <= most_overhead
    assert least_bound <= 100 * (finding.claim.bound_ns / total_ns - 1)
