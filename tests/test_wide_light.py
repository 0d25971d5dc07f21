"""Small tensors set aside: fewer columns, and still a bound."""

from __future__ import annotations

from builders import op, problem
from checkmate.milp.assemble import make_clock
from checkmate.milp.wide_assemble import assemble
from checkmate.milp.wide_light import set_small_aside
from checkmate.milp.wide_rows import make_frame
from checkmate.solver.highs import solve_program
from checkmate.solver.result import Settings
from test_wide import case

SHARE = 0.3


def test_no_bound_without_small_tensors_is_above_the_best_of_all_schedules() -> None:
    n_lighter = n_bounding = 0
    for seed in range(160):
        one = case(seed)
        light = set_small_aside(one.small, one.budget_nbytes, SHARE)
        frame = make_frame(light, one.budget_nbytes, 1 + seed // 4 % 2)
        clock = make_clock(one.small)
        result = solve_program(assemble(frame, clock, with_windows=seed % 2 == 0), Settings())
        if one.best_ns is not None:
            assert result.status != "infeasible", f"seed {seed}"
            assert clock.round_bound(result.bound) <= one.best_ns, f"seed {seed}"
            n_lighter += light != one.small
            n_bounding += clock.round_bound(result.bound) > one.small.costs.total_ns
    assert n_lighter > 60
    assert n_bounding > 10


def test_the_smallest_are_set_aside_as_long_as_they_fit_in_the_share() -> None:
    small = problem(
        op("a", makes={"a": 50, "s": 2}), op("t", "a", nbytes=3), op("b", "s t a", nbytes=6),
        outputs="b t", resident={"x": 10},
    )  # fmt: skip
    light = set_small_aside(small, 110, 0.05).graph
    assert [tensor.nbytes for tensor in light.tensors] == [10, 50, 0, 0, 6]
    assert [op.inputs for op in light.ops] == [(), (1,), (1,)]
    assert [op.recomputable for op in light.ops] == [True, False, True]
    assert light.outputs == (4,)


def test_a_problem_of_large_tensors_stays_as_it_is() -> None:
    small = problem(op("a", nbytes=5), op("b", "a", nbytes=6), outputs="b")
    assert set_small_aside(small, 11) == small
