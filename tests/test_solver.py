"""HiGHS: its answers, its process, and the ways both end."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from checkmate.errors import AbortError, SolverError
from checkmate.milp.model import FloatArray, Program
from checkmate.solver import process
from checkmate.solver.files import (
    read_incumbent,
    read_job,
    read_result,
    write_failure,
    write_incumbent,
    write_job,
    write_result,
)  # fmt: skip
from checkmate.solver.highs import solve_program
from checkmate.solver.process import solve_in_worker
from checkmate.solver.result import MilpResult, Settings
from checkmate.solver.session import Watch
from interrupting import find_children, needs_proc


def make_program(
    cost: list[float], rows: list[list[float]], upper: list[float], *, integer: bool = True
) -> Program:
    """Return the program over columns from 0 to 1, each row at most its upper bound."""
    n_cols, n_rows = len(cost), len(rows)
    return Program(
        cost=np.array(cost),
        offset=0.0,
        lower=np.zeros(n_cols),
        upper=np.ones(n_cols),
        is_integer=np.full(n_cols, integer),
        row_lower=np.full(n_rows, -np.inf),
        row_upper=np.array(upper),
        starts=np.arange(n_rows + 1, dtype=np.int32) * n_cols,
        indices=np.tile(np.arange(n_cols, dtype=np.int32), n_rows),
        values=np.array(rows, dtype=np.float64).ravel(),
    )


KNAPSACK = make_program([-6, -10, -12], [[1, 2, 3]], [5])
CONTRADICTION = make_program([1, 1], [[1, 1], [-1, -1]], [1.5, -1.2])
"""One or two columns, but not a whole number of them."""


def make_hard_program() -> Program:
    """Return a market split: seconds to a first solution, for ever to a proof."""
    rng = np.random.default_rng(1)
    n_cols, n_rows = 50, 6
    weights = rng.integers(0, 100, size=(n_rows, n_cols)).astype(float)
    slack = np.kron(np.eye(n_rows), [1.0, -1.0]) * 2000
    rows = np.hstack([weights, slack])
    half = weights.sum(axis=1) // 2
    cost = [0.0] * n_cols + [1.0] * (2 * n_rows)
    program = make_program(cost, [*rows.tolist(), *(-rows).tolist()], [*half, *-half])
    is_integer = np.array([True] * n_cols + [False] * (2 * n_rows))
    return replace(program, is_integer=is_integer)


HARD = make_hard_program()


def objective_of(program: Program, values: FloatArray | None) -> float:
    assert values is not None
    return float(program.offset + program.cost @ values)


def test_an_optimum_is_solved_with_equal_objective_and_bound() -> None:
    result = solve_program(KNAPSACK, Settings())
    assert result.status == "solved"
    assert result.objective == result.bound == -22
    assert objective_of(KNAPSACK, result.values) == -22


def test_a_relaxation_has_its_objective_for_a_bound() -> None:
    relaxed = replace(KNAPSACK, is_integer=np.zeros(3, dtype=np.bool_))
    result = solve_program(relaxed, Settings())
    assert result.status == "solved"
    assert result.objective == result.bound == pytest.approx(-24)


@pytest.mark.parametrize("integer", [True, False])
def test_infeasible_has_no_values_and_an_infinite_bound(integer: bool) -> None:
    impossible = make_program([1, 1], [[1, 1], [-1, -1]], [1.0, -1.5], integer=integer)
    result = solve_program(impossible, Settings())
    assert (result.status, result.values) == ("infeasible", None)
    assert (result.objective, result.bound) == (np.inf, np.inf)


def test_infeasible_only_in_integers_is_infeasible() -> None:
    assert solve_program(CONTRADICTION, Settings()).status == "infeasible"


def test_a_limit_without_a_solution_has_no_values() -> None:
    result = solve_program(HARD, Settings(time_s=0.0))
    assert (result.status, result.values) == ("limit", None)
    assert result.objective == np.inf


def test_a_node_limit_keeps_the_solution_and_a_bound_below_it() -> None:
    result = solve_program(HARD, Settings(nodes=20))
    assert result.status == "limit"
    assert result.bound < result.objective == pytest.approx(objective_of(HARD, result.values))


def test_a_solution_to_begin_from_is_not_lost() -> None:
    first = solve_program(HARD, Settings(nodes=20))
    again = solve_program(HARD, Settings(nodes=0), first.values)
    assert again.objective <= first.objective + 1e-6


@pytest.mark.parametrize("settings", [Settings(nodes=-1), Settings(gap=-1.0)])
def test_a_refused_option_is_a_solver_error(settings: Settings) -> None:
    with pytest.raises(SolverError, match="HiGHS refused option mip_"):
        solve_program(KNAPSACK, settings)


def test_a_refused_model_is_a_solver_error() -> None:
    broken = replace(KNAPSACK, indices=KNAPSACK.indices + 7)
    with pytest.raises(SolverError, match="HiGHS refused the model"):
        solve_program(broken, Settings())


def test_every_better_solution_is_told() -> None:
    told: list[tuple[float, float]] = []

    def tell(values: FloatArray, objective: float, bound: float) -> None:
        assert bound <= objective
        told.append((objective, objective_of(HARD, values)))

    result = solve_program(HARD, Settings(nodes=50), watch=Watch(on_incumbent=tell))
    assert [objective for objective, _ in told] == pytest.approx([own for _, own in told])
    assert told == sorted(told, reverse=True)
    assert told[-1][0] == pytest.approx(result.objective)


def test_a_solve_that_is_asked_to_stop_is_interrupted() -> None:
    began_s = time.monotonic()
    watch = Watch(is_stopped=lambda: time.monotonic() > began_s + 0.3)
    assert solve_program(HARD, Settings(), watch=watch).status == "interrupted"


def test_the_worker_answers_as_this_process_does() -> None:
    here, there = solve_program(HARD, Settings(nodes=5)), solve_in_worker(HARD, Settings(nodes=5))
    assert (there.status, there.objective, there.bound) == (here.status, here.objective, here.bound)
    assert there.nodes == here.nodes
    assert np.array_equal(there.values, here.values)  # type: ignore[arg-type]


def test_nothing_that_highs_prints_reaches_our_output(capfd: pytest.CaptureFixture[str]) -> None:
    solve_in_worker(KNAPSACK, Settings())
    assert capfd.readouterr() == ("", "")


def test_the_worker_is_given_the_start_and_the_limits() -> None:
    first = solve_program(HARD, Settings(nodes=20))
    again = solve_in_worker(HARD, Settings(nodes=0), first.values)
    assert again.status == "limit"
    assert again.objective <= first.objective + 1e-6


def test_a_worker_that_fails_is_a_solver_error_of_one_line() -> None:
    with pytest.raises(SolverError, match=r"^HiGHS refused option mip_max_nodes: kError$"):
        solve_in_worker(KNAPSACK, Settings(nodes=-1))


def signal_children_after(seconds: float, number: signal.Signals) -> threading.Timer:
    def send() -> None:
        for child in find_children():
            os.kill(child, number)

    timer = threading.Timer(seconds, send)
    timer.start()
    return timer


@needs_proc
def test_a_worker_that_dies_is_a_solver_error() -> None:
    signal_children_after(1.0, signal.SIGKILL)
    with pytest.raises(SolverError, match="the HiGHS process ended with code -9"):
        solve_in_worker(HARD, Settings(time_s=20.0))


@needs_proc
def test_a_worker_that_hangs_is_killed_and_its_best_solution_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "_GRACE_S", 0.2)
    start = solve_program(HARD, Settings(nodes=20))
    signal_children_after(3.0, signal.SIGSTOP)
    result = solve_in_worker(HARD, Settings(time_s=4.0), start.values)
    assert result.status == "limit"
    assert result.objective == pytest.approx(objective_of(HARD, result.values))
    assert find_children() == []


def interrupt_after(seconds: float) -> Callable[[], None]:
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    return timer.cancel


@needs_proc
def test_an_interrupt_returns_the_best_solution_so_far() -> None:
    start = solve_program(HARD, Settings(nodes=20))
    cancel = interrupt_after(2.0)
    result = solve_in_worker(HARD, Settings(time_s=30.0), start.values)
    cancel()
    assert result.status == "interrupted"
    assert result.objective <= start.objective + 1e-6
    assert result.bound <= result.objective
    assert find_children() == []


@needs_proc
def test_a_second_interrupt_keeps_nothing() -> None:
    timer = signal_children_after(1.0, signal.SIGSTOP)
    cancels = [interrupt_after(seconds) for seconds in (1.5, 2.5)]
    with pytest.raises(AbortError, match="interrupted twice"):
        solve_in_worker(HARD, Settings(time_s=30.0))
    for cancel in (timer.cancel, *cancels):
        cancel()
    assert find_children() == []


def test_an_interrupt_is_known_even_when_the_solve_was_done(tmp_path: Path) -> None:
    write_result(tmp_path, MilpResult("solved", np.array([1.0]), 2.0, 2.0, 1, ""))
    assert process._collect(tmp_path, 0, "alone").status == "solved"
    assert process._collect(tmp_path, 0, "limit").status == "solved"
    assert process._collect(tmp_path, 0, "interrupted").status == "interrupted"


def test_an_answer_is_read_back_equal(tmp_path: Path) -> None:
    answer = MilpResult("limit", np.array([0.0, 1.0]), 2.0, -np.inf, 7, "1.2.3")
    write_result(tmp_path, answer)
    write_incumbent(tmp_path, replace(answer, values=None))
    again, incumbent = read_result(tmp_path), read_incumbent(tmp_path)
    assert again is not None
    assert np.array_equal(again.values, answer.values)  # type: ignore[arg-type]
    assert replace(again, values=None) == incumbent == replace(answer, values=None)


def test_a_job_is_read_back_equal(tmp_path: Path) -> None:
    write_job(tmp_path, KNAPSACK, Settings(0.1, None, 3), None)
    program, settings, start = read_job(tmp_path)
    assert solve_program(program, Settings()).objective == -22
    assert settings == Settings(0.1, None, 3)
    assert start is None


def test_without_an_answer_there_is_none_and_with_a_failure_an_error(tmp_path: Path) -> None:
    assert read_result(tmp_path) is None
    write_failure(tmp_path, "no luck")
    with pytest.raises(SolverError, match=r"^no luck$"):
        read_result(tmp_path)


def test_a_file_with_python_objects_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "result.npz").open("wb") as file:
        np.savez(file, values=np.array([None], dtype=object))
    with pytest.raises(SolverError, match=r"result\.npz cannot be read"):
        read_result(tmp_path)
