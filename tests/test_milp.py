"""The program against every schedule tried one after the other."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from builders import op, problem, random_training, training_chain
from checkmate.folding import fold_views
from checkmate.graph import OpId
from checkmate.liveness import insert_frees
from checkmate.milp.assemble import Clock, make_clock, make_program
from checkmate.milp.encode import decode, encode, is_frontier_advancing, split_stages
from checkmate.milp.frame import Frame, make_frame, walk_memory
from checkmate.milp.model import FloatArray, Program
from checkmate.milp.rows import FAMILIES, Family
from checkmate.problem import Problem
from checkmate.schedule import Compute
from checkmate.search.bound import smallest_conceivable_nbytes
from checkmate.simulate import simulate
from checkmate.solver.highs import solve_program
from checkmate.solver.result import Settings
from oracle import find_best_time


def peak_of(small: Problem, order: tuple[OpId, ...] | None = None) -> int:
    return simulate(small, insert_frees(small.graph, order or in_order(small))).peak.nbytes


def in_order(small: Problem) -> tuple[OpId, ...]:
    return tuple(OpId(i) for i in range(len(small.graph.ops)))


def draw(seed: int, n_forward: int = 3) -> tuple[Problem, int]:
    """Return a random problem without views, and a budget that may be too small for it."""
    rng = random.Random(seed)
    small = fold_views(random_training(rng, n_forward)).folded
    least, _ = smallest_conceivable_nbytes(small)
    return small, rng.randint(least, max(least, peak_of(small) - 1))


def solve(
    small: Problem, budget_nbytes: int, families: tuple[Family, ...] = tuple(FAMILIES.values())
) -> tuple[int | None, tuple[OpId, ...]]:
    """Return the optimum in ns and its order; None when there is none."""
    frame, clock = make_frame(small, budget_nbytes), make_clock(small)
    result = solve_program(make_program(small, frame, clock, families), Settings())
    if result.values is None:
        assert result.status == "infeasible"
        return None, ()
    order = decode(frame.columns, result.values)
    return round(result.objective * clock.unit_ns), order


@pytest.mark.parametrize("first_seed", range(0, 500, 20))
def test_the_optimum_is_that_of_trying_all_schedules(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 20):
        small, budget_nbytes = draw(seed)
        time_ns, order = solve(small, budget_nbytes)
        assert time_ns == find_best_time(small, budget_nbytes), seed
        assert time_ns is None or peak_of(small, order) <= budget_nbytes, seed
        assert time_ns is None or is_frontier_advancing(small.graph, order), seed


def test_the_random_problems_are_a_fair_mix() -> None:
    drawn = [draw(seed) for seed in range(100)]
    best = [find_best_time(small, budget_nbytes) for small, budget_nbytes in drawn]
    assert best.count(None) > 20
    paired = zip(best, (small.costs.total_ns for small, _ in drawn), strict=True)
    assert sum(time_ns is not None and time_ns > total_ns for time_ns, total_ns in paired) > 30


@pytest.mark.parametrize("family", FAMILIES)
def test_without_one_family_of_rows_some_optimum_is_wrong(family: str) -> None:
    rest = tuple(add_rows for name, add_rows in FAMILIES.items() if name != family)
    drawn = [draw(seed) for seed in range(30)]
    assert any(solve(*one)[0] == find_best_time(*one) for one in drawn)
    assert any(solve(*one, rest)[0] != find_best_time(*one) for one in drawn)


def find_excess(program: Program, values: FloatArray) -> FloatArray:
    """Return by how much each row is exceeded."""
    ends = zip(program.starts, program.starts[1:], strict=False)
    sums = [program.values[a:b] @ values[program.indices[a:b]] for a, b in ends]
    return np.array(sums) - program.row_upper


def draw_with_order(seed: int, n_forward: int) -> tuple[Problem, int, tuple[OpId, ...]]:
    """Return a random problem, a budget, and the best order; where none fits, one that does."""
    small, budget_nbytes = draw(seed, n_forward)
    order = solve(small, budget_nbytes)[1] or in_order(small)
    return small, max(budget_nbytes, peak_of(small, order)), order


@pytest.mark.parametrize("seed", range(60))
def test_an_encoded_order_keeps_every_row_and_is_decoded_as_it_was(seed: int) -> None:
    small, budget_nbytes, order = draw_with_order(seed, 4)
    frame, clock = make_frame(small, budget_nbytes), make_clock(small)
    program = make_program(small, frame, clock)
    values = encode(small.graph, frame.columns, order)
    assert find_excess(program, values).max() <= 0
    assert (program.lower <= values).all()
    time_ns = simulate(small, insert_frees(small.graph, order)).time_ns
    assert program.offset + program.cost @ values == time_ns / clock.unit_ns
    assert decode(frame.columns, values) == order


@pytest.mark.parametrize("seed", range(60))
def test_memory_in_the_program_is_memory_in_the_simulator(seed: int) -> None:
    small, budget_nbytes, order = draw_with_order(seed, 4)
    frame = make_frame(small, budget_nbytes)
    schedule = insert_frees(small.graph, order)
    used = zip(simulate(small, schedule).used_nbytes, schedule.instructions, strict=True)
    expected = [nbytes for nbytes, step in used if isinstance(step, Compute)]
    assert memory_of(small, frame, order) == expected


def memory_of(small: Problem, frame: Frame, order: tuple[OpId, ...]) -> list[float]:
    """Return the memory that the program counts at each compute of ``order``."""
    values = encode(small.graph, frame.columns, order)
    found = []
    for t, stage in enumerate(split_stages(order)):
        for k, memory in walk_memory(small.graph, frame.columns, t):
            if k in stage:
                live = sum(small.graph.tensors[e].nbytes * values[column] for e, column in memory)
                found.append(small.graph.resident_nbytes + live + frame.transient[k])
    return found


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ((0, 1, 2), True),
        ((0, 1, 0, 2), True),
        ((0, 0, 1, 0, 1, 2), True),
        ((0, 0, 0, 1, 2), False),
        ((0, 1, 1, 2), True),
        ((0, 1, 1, 0, 2), False),
        ((0, 1, 2, 0), False),
        ((0, 1), False),
        ((0, 2, 1), False),
        ((1, 0, 2), False),
        ((0, 1, 0, 1, 2), True),
    ],
)
def test_frontier_advancing_orders_are_stages_that_ascend(
    order: tuple[int, ...], expected: bool
) -> None:
    small = problem(op("a"), op("b"), op("c"), outputs="a b c")
    assert is_frontier_advancing(small.graph, [OpId(i) for i in order]) == expected


@pytest.mark.parametrize(
    ("budget_nbytes", "optimum", "published_bound", "bound"),
    [(4, 26, 22, 23), (5, 22, 21, 22), (6, 21, 20, 21)],
)
def test_the_papers_linear_network_has_its_published_optima(
    budget_nbytes: int, optimum: int, published_bound: int, bound: int
) -> None:
    # 8 layers, a loss and 8 gradients, each of which reads the gradient above it and the output
    # of its own layer; with fewer or more reads the optima differ from the published ones.
    small = training_chain(8)
    assert len(small.graph.ops) == 17
    assert solve(small, budget_nbytes)[0] == optimum
    frame, clock = make_frame(small, budget_nbytes), make_clock(small)
    program = make_program(small, frame, clock)
    relaxed = replace(program, is_integer=np.zeros(program.n_cols, dtype=np.bool_))
    assert solve_program(relaxed, Settings()).objective == pytest.approx(bound)
    assert bound >= published_bound


@pytest.mark.parametrize(
    ("clock", "objective", "bound_ns"),
    [
        (Clock(5000, is_exact=True), 3100.0, 15_500_000),
        (Clock(5000, is_exact=True), 3100.001, 15_500_000),
        (Clock(5000, is_exact=True), 3100.2, 15_505_000),
        (Clock(5000, is_exact=True), 3099.999, 15_500_000),
        (Clock(7, is_exact=False), 1000.0, 7000),
        (Clock(70, is_exact=False), 1000.0, 70_000),
        (Clock(7000, is_exact=False), 1000.0, 6_999_930),
    ],
)
def test_a_bound_is_rounded_up_after_the_tolerance_is_off(
    clock: Clock, objective: float, bound_ns: int
) -> None:
    assert clock.round_bound(objective) == bound_ns


def test_costs_are_exact_while_few_units_make_them_up() -> None:
    assert make_clock(problem(op("a", time_ns=30), op("b", time_ns=45), outputs="a")) == Clock(
        15, is_exact=True
    )
    large = problem(op("a", time_ns=10**9), op("b", time_ns=10**9 + 1), outputs="a")
    assert make_clock(large) == Clock(200, is_exact=False)


def test_a_budget_of_exactly_one_schedules_peak_is_kept_to_the_byte() -> None:
    # Three ops of one unit: a is read twice, so keeping it costs one unit more.
    small = problem(op("a"), op("b", "a"), op("c", "b"), op("d", "c a"), outputs="d")
    assert [solve(small, budget_nbytes)[0] for budget_nbytes in (2, 3)] == [None, 4]
    large = 2**40 + 1
    same = problem(
        op("a", nbytes=large), op("b", "a", nbytes=large), op("c", "b", nbytes=large),
        op("d", "c a", nbytes=large), outputs="d",
    )  # fmt: skip
    assert [solve(same, 3 * large - lack)[0] for lack in (1, 0)] == [None, 4]
