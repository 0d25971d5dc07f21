"""The exact search: what it claims, and what it does when it cannot know."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from builders import chain, op, problem, random_training, training_chain
from checkmate.errors import (
    InfeasibleError,
    InterruptError,
    NoneInSpaceError,
    NotFoundError,
)
from checkmate.folding import fold_views
from checkmate.formats.problem_json import read_problem
from checkmate.graph import OpId
from checkmate.liveness import insert_frees
from checkmate.plan import Plan, certify
from checkmate.problem import Problem
from checkmate.search.bound import smallest_conceivable_nbytes
from checkmate.search.exact import find_lp_bound, solve_exact
from checkmate.search.finding import Finding, Limits
from checkmate.simulate import simulate
from interrupting import interrupt_a_solver, needs_proc
from oracle import find_best_time

PROVE = Limits(gap=0.0)
INSTANCES = Path(__file__).parents[2] / "shared" / "instances"


def plan_of(small: Problem, budget_nbytes: int, finding: Finding) -> Plan:
    schedule = insert_frees(small.graph, finding.order)
    return certify(small, schedule, budget_nbytes, finding.claim)


def order_of(small: Problem, names: str) -> tuple[OpId, ...]:
    ids = {op_.name: OpId(i) for i, op_ in enumerate(small.graph.ops)}
    return tuple(ids[name] for name in names.split())


def test_a_graph_that_fits_as_it_is_needs_no_solver() -> None:
    small = chain(4, 2, 1)
    finding = solve_exact(small, 6, PROVE)
    assert finding.order == order_of(small, "op0 op1 op2")
    assert finding.claim.space == "all-schedules"
    assert finding.claim.termination == "optimal"
    assert finding.claim.solver.name == ""


@pytest.mark.parametrize("seed", [1, 3, 4, 9, 15])
def test_the_search_finds_what_trying_all_schedules_finds(seed: int) -> None:
    small = fold_views(random_training(random.Random(seed), 3)).folded
    budget_nbytes = smallest_conceivable_nbytes(small)[0] + 1
    best_ns = find_best_time(small, budget_nbytes)
    assert best_ns is not None and best_ns > small.costs.total_ns
    finding = solve_exact(small, budget_nbytes, PROVE)
    assert plan_of(small, budget_nbytes, finding).time_ns == best_ns
    assert finding.claim.bound_ns == best_ns
    assert finding.claim.termination == "optimal"
    assert finding.claim.space == "frontier-advancing"
    assert finding.claim.solver.name == "HiGHS"


def test_too_small_for_one_op_names_the_op_and_both_numbers() -> None:
    message = r"'training-chain' fits in 2 B .*: op 'b7' alone needs 3 B"
    with pytest.raises(InfeasibleError, match=message):
        solve_exact(training_chain(8), 2, PROVE)


def crowded() -> Problem:
    """Return a graph whose last op needs a2 and b2 when only non-ascending runs make room."""
    return problem(
        op("a", nbytes=3), op("b", nbytes=3), op("a2", "a"), op("b2", "b"), op("d", nbytes=6),
        op("d2", "d"), op("c", "a2 b2 d2"), outputs="c",
    )  # fmt: skip


def test_what_fits_no_op_but_no_schedule_either_is_infeasible_by_proof() -> None:
    assert smallest_conceivable_nbytes(crowded())[0] == 7
    assert find_best_time(crowded(), 7) is None
    with pytest.raises(
        NoneInSpaceError, match="no frontier-advancing schedule of 'small' fits in 7"
    ):
        solve_exact(crowded(), 7, PROVE)


def test_an_order_that_is_not_frontier_advancing_is_returned_with_a_bound_that_holds_for_it() -> (
    None
):
    start = order_of(crowded(), "a b a a2 b b2 d d2 a a2 b b2 c")
    finding = solve_exact(crowded(), 7, PROVE, start)
    assert finding.order == start
    assert finding.claim.space == "all-schedules"
    assert finding.claim.bound_ns == crowded().costs.total_ns == 7
    assert finding.claim.termination == "limit"


def test_an_order_outside_the_space_is_not_given_the_bound_of_the_space() -> None:
    # Only one of a2, b2 and d2 survives w. To retain d2 is best, but then a, a2, b, b2 in
    # ascending order need 8 bytes; to retain a2 means to make d again.
    small = problem(
        op("a", nbytes=3), op("b", nbytes=3), op("a2", "a"), op("b2", "b"),
        op("d", nbytes=4, time_ns=10), op("d2", "d"), op("w", nbytes=0, workspace_nbytes=6),
        op("c", "a2 b2 d2"), outputs="c",
    )  # fmt: skip
    inside = solve_exact(small, 7, PROVE)
    assert (inside.claim.space, inside.claim.bound_ns) == ("frontier-advancing", 30)
    start = order_of(small, "a b a2 b2 d d2 w a a2 b b2 c")
    outside = solve_exact(small, 7, PROVE, start)
    assert outside.order == start
    assert (outside.claim.space, outside.claim.bound_ns) == ("all-schedules", 17)
    assert plan_of(small, 7, outside).time_ns == 21


def test_a_limit_without_a_schedule_is_not_found_and_says_what_is_known() -> None:
    with pytest.raises(NotFoundError, match=r"fits in 4 B .* none that does takes less than 17 ns"):
        solve_exact(training_chain(8), 4, Limits(time_s=0.0))


def test_a_limit_returns_the_start() -> None:
    small = training_chain(3)
    start = order_of(small, "f0 f1 f2 loss b2 f0 f1 b1 f0 b0")
    finding = solve_exact(small, 4, Limits(gap=0.0, time_s=0.0), start)
    assert finding.order == start
    assert finding.claim.termination == "limit"
    assert finding.claim.bound_ns == 7


def test_a_start_above_the_budget_is_not_used() -> None:
    small = training_chain(3)
    with pytest.raises(NotFoundError):
        solve_exact(small, 3, Limits(time_s=0.0), order_of(small, "f0 f1 f2 loss b2 b1 b0"))


def retain_nothing(n_layers: int) -> str:
    """Return the order of a training chain that makes every layer again for every gradient."""
    forward = [f"f{i}" for i in range(n_layers)]
    gradients = (" ".join((*forward[: i + 1], f"b{i}")) for i in reversed(range(n_layers)))
    return " ".join((*forward, "loss", *gradients))


@needs_proc
def test_an_interrupt_returns_what_is_in_hand() -> None:
    small = training_chain(20)
    start = order_of(small, retain_nothing(20))
    cancel = interrupt_a_solver()
    finding = solve_exact(small, 5, Limits(gap=0.0, time_s=60.0), start)
    cancel()
    assert finding.claim.termination == "interrupted"
    assert len(finding.order) <= len(start)
    assert plan_of(small, 5, finding).gap > 0


@needs_proc
def test_an_interrupt_with_nothing_in_hand_is_an_error() -> None:
    cancel = interrupt_a_solver()
    with pytest.raises(InterruptError):
        solve_exact(training_chain(80), 6, Limits(gap=0.0, time_s=60.0))
    cancel()


def test_the_search_improves_on_its_start() -> None:
    small = training_chain(8)
    best = solve_exact(small, 4, PROVE)
    other = solve_exact(small, 5, PROVE, best.order)
    assert [len(best.order), len(other.order)] == [26, 22]


def test_a_gap_is_good_enough() -> None:
    small = training_chain(8)
    finding = solve_exact(small, 4, Limits(gap=0.5))
    assert plan_of(small, 4, finding).gap <= 0.5


def test_the_same_search_finds_the_same() -> None:
    small = fold_views(random_training(random.Random(5), 8)).folded
    budget_nbytes = smallest_conceivable_nbytes(small)[0] + 3
    findings = [solve_exact(small, budget_nbytes, Limits(gap=0.0, nodes=5)) for _ in range(2)]
    assert findings[0] == findings[1]


def draw_uneven(seed: int) -> tuple[Problem, int]:
    """Return a random problem whose sizes no unit divides, and a budget that it can be run in."""
    rng = random.Random(seed)
    small = fold_views(random_training(rng, 3)).folded
    tensors = tuple(
        replace(tensor, nbytes=tensor.nbytes * 2**31 + rng.randrange(1000))
        for tensor in small.graph.tensors
    )
    uneven = Problem(replace(small.graph, tensors=tensors), small.costs)
    least_nbytes, _ = smallest_conceivable_nbytes(uneven)
    in_order = insert_frees(uneven.graph, [OpId(i) for i in range(len(uneven.graph.ops))])
    return uneven, rng.randint(least_nbytes, simulate(uneven, in_order).peak.nbytes - 1)


# Rounded down to their unit, these sizes hide bytes that only the simulator sees; without the
# rows that forbid its finds, each of these searches would return a schedule above the budget.
@pytest.mark.parametrize("seed", [1, 45])
def test_sizes_that_no_unit_divides_are_kept_to_the_byte(seed: int) -> None:
    uneven, enough_nbytes = draw_uneven(seed)
    finding = solve_exact(uneven, enough_nbytes, PROVE)
    exact_nbytes = simulate(uneven, insert_frees(uneven.graph, finding.order)).peak.nbytes
    assert solve_exact(uneven, exact_nbytes, PROVE).claim.bound_ns == finding.claim.bound_ns
    less_ns = find_best_time(uneven, exact_nbytes - 1)
    assert solve_or_none(uneven, exact_nbytes - 1) == less_ns


def solve_or_none(small: Problem, budget_nbytes: int) -> int | None:
    try:
        finding = solve_exact(small, budget_nbytes, PROVE)
    except (InfeasibleError, NoneInSpaceError):
        return None
    return plan_of(small, budget_nbytes, finding).time_ns


def test_the_relaxation_bounds_the_optimum_from_below() -> None:
    assert [find_lp_bound(training_chain(8), budget, Limits()) for budget in (4, 5, 6)] == [
        23,
        22,
        21,
    ]


def test_a_relaxation_without_solution_is_infeasible_by_proof() -> None:
    with pytest.raises(NoneInSpaceError):
        find_lp_bound(crowded(), 7, PROVE)


@pytest.mark.skipif(not INSTANCES.is_dir(), reason=f"needs the published instances in {INSTANCES}")
@pytest.mark.parametrize(
    ("name", "peak_nbytes", "floor_nbytes", "total_us"),
    [
        ("vgg16-b256", 15_825_108_992, 13_153_337_344, 15_500),
        ("mobilenet-b512", 34_701_056_000, 6_635_651_072, 162_080),
        ("resnet50-b256", 38_059_356_160, 3_699_376_128, 405_670),
        ("unet-b32", 20_959_461_376, 8_287_944_704, 31_005),
    ],
)
def test_the_published_instances_have_their_published_peaks_and_floors(
    name: str, peak_nbytes: int, floor_nbytes: int, total_us: int
) -> None:
    instance = read_problem(INSTANCES / f"{name}-v100.json")
    finding = solve_exact(instance, peak_nbytes, PROVE)
    assert plan_of(instance, peak_nbytes, finding).peak.nbytes == peak_nbytes
    assert smallest_conceivable_nbytes(instance)[0] == floor_nbytes
    assert instance.costs.total_ns == 1000 * total_us


@pytest.mark.skipif(not INSTANCES.is_dir(), reason=f"needs the published instances in {INSTANCES}")
@pytest.mark.parametrize(
    ("name", "budget_nbytes", "optimum"),
    [
        ("vgg16-b256", 13_200_000_000, 1.0197),
        ("vgg16-b256", 13_600_000_000, 1.0197),
        ("vgg16-b256", 14_000_000_000, 1.0197),
        ("vgg16-b256", 14_900_000_000, 1.0165),
        ("vgg16-b256", 16_000_000_000, 1.0000),
        ("unet-b32", 20_000_000_000, 1.0050),
        ("unet-b32", 15_900_000_000, 1.0231),
    ],
)
def test_the_published_instances_have_their_published_optima(
    name: str, budget_nbytes: int, optimum: float
) -> None:
    instance = read_problem(INSTANCES / f"{name}-v100.json")
    plan = plan_of(instance, budget_nbytes, solve_exact(instance, budget_nbytes, PROVE))
    assert round(plan.time_ns / instance.costs.total_ns, 4) == optimum
    assert plan.claim.termination == "optimal"


def test_a_relaxation_ends_when_no_time_is_left_to_write_its_program() -> None:
    small = training_chain(20)
    with pytest.raises(NotFoundError, match="time limit ended while the program was written"):
        find_lp_bound(small, 12, Limits(time_s=0.0))
