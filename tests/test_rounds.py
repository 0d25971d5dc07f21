"""Linear programs solved by their rows as they are missed, and bounds that need no trust."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import count

import numpy as np
import pytest

from builders import training_chain
from chain_oracle import find_best_chain
from chain_problems import draw_chain
from checkmate.milp.assemble import make_clock
from checkmate.milp.chain import arrange
from checkmate.milp.chain_assemble import assemble
from checkmate.milp.chain_frame import make_bounding_frame
from checkmate.milp.dual_bound import find_dual_bound
from checkmate.milp.model import Program, relax
from checkmate.problem import Problem
from checkmate.solver import highs
from checkmate.solver.highs import solve_program
from checkmate.solver.result import MilpResult, Settings
from checkmate.solver.session import Session, Watch

N_LAYERS = 40


def assemble_whole(problem: Problem, budget_nbytes: int, depth: int) -> Program:
    """Return the program of chains of stages with all memory rows."""
    chain = arrange(problem.graph)
    assert chain is not None
    frame = make_bounding_frame(chain, problem, budget_nbytes, depth)
    return assemble(frame, make_clock(problem), range(len(chain.stages))).program


@cache
def large() -> Program:
    """Return a relaxation of which half of the rows are long."""
    return relax(assemble_whole(training_chain(N_LAYERS), N_LAYERS // 2, 4))


def solve_whole(program: Program) -> tuple[MilpResult, Session]:
    session = Session(program, Settings(), Watch(), presolve="choose")
    result = session.run()
    assert result is not None
    return result, session


@pytest.mark.parametrize("n_coefficients", [0, 2, 5, 20])
def test_rounds_end_at_the_optimum_of_all_rows(
    n_coefficients: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(highs, "_LONG", n_coefficients)
    program = large()
    whole, _ = solve_whole(program)
    result = solve_program(program, Settings())
    assert result.values is not None
    assert (result.status, result.objective) == ("solved", pytest.approx(whole.objective))
    assert result.bound == pytest.approx(whole.objective)
    assert (program.find_row_values(result.values) <= program.row_upper + 1e-5).all()


def test_rows_that_no_round_breaks_are_never_added(monkeypatch: pytest.MonkeyPatch) -> None:
    added: list[int] = []
    add_rows = Session.add_rows

    def note(session: Session, rows: Program) -> None:
        added.append(rows.n_rows)
        add_rows(session, rows)

    monkeypatch.setattr(Session, "add_rows", note)
    monkeypatch.setattr(highs, "_LONG", 20)
    solve_program(large(), Settings())
    n_long = int((np.diff(large().starts) > 20).sum())
    assert 0 < sum(added) < n_long / 4


@pytest.mark.parametrize("n_asked", [0, 20, 100, 300])
def test_a_program_that_was_stopped_has_the_bound_of_its_rounds(
    n_asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(highs, "_LONG", 20)
    whole, _ = solve_whole(large())
    asked = count()
    watch = Watch(is_stopped=lambda: next(asked) >= n_asked)
    result = solve_program(large(), Settings(), watch=watch)
    assert (result.status, result.values) == ("interrupted", None)
    assert result.bound <= whole.objective + 1e-6


def test_a_round_that_was_solved_counts_after_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(highs, "_LONG", 20)
    bounds = []
    for n_asked in range(0, 400, 20):
        asked = count()
        watch = Watch(is_stopped=lambda asked=asked, most=n_asked: next(asked) >= most)  # type: ignore[misc]
        bounds.append(solve_program(large(), Settings(), watch=watch).bound)
    ideal = training_chain(N_LAYERS).costs.total_ns
    assert any(ideal < bound < bounds[-1] for bound in bounds)


def test_the_duals_of_an_optimum_prove_it() -> None:
    result, session = solve_whole(large())
    assert find_dual_bound(large(), session.find_duals()) == pytest.approx(result.objective)


@pytest.mark.parametrize("seed", range(40))
def test_no_multipliers_prove_more_than_the_best_schedule_takes(seed: int) -> None:
    small, budget_nbytes = draw_chain(seed)
    best = find_best_chain(small, budget_nbytes)
    best_ns = np.inf if best is None else best[0]
    program, unit_ns = relax(assemble_whole(small, budget_nbytes, 1)), make_clock(small).unit_ns
    _, session = solve_whole(program)
    rng = np.random.default_rng(seed)
    duals = session.find_duals()
    for guess in (duals, -duals, 2 * duals, duals + rng.normal(size=len(duals))):
        assert find_dual_bound(program, guess) * unit_ns <= best_ns + 1e-3


def test_multipliers_that_are_no_numbers_count_for_nothing() -> None:
    _, session = solve_whole(large())
    duals = session.find_duals()
    broken = np.where(np.arange(len(duals)) % 3 == 0, np.nan, duals)
    zeroed = np.where(np.arange(len(duals)) % 3 == 0, 0.0, duals)
    assert find_dual_bound(large(), broken) == find_dual_bound(large(), zeroed)


def test_a_column_without_an_end_that_the_objective_falls_along_proves_nothing() -> None:
    program = replace(large(), upper=np.full(large().n_cols, np.inf), cost=-large().cost)
    assert find_dual_bound(program, np.zeros(program.n_rows)) == -np.inf


def test_a_lower_end_of_a_row_counts_with_multipliers_above_zero() -> None:
    # minimise x where 2 x >= 1 and 0 <= x <= 1
    program = Program(
        cost=np.array([1.0]), offset=3.0, lower=np.array([0.0]), upper=np.array([1.0]),
        is_integer=np.array([False]), row_lower=np.array([1.0]), row_upper=np.array([np.inf]),
        starts=np.array([0, 1], dtype=np.int32), indices=np.array([0], dtype=np.int32),
        values=np.array([2.0]),
    )  # fmt: skip
    assert find_dual_bound(program, np.array([0.5])) == 3.5
    assert find_dual_bound(program, np.array([-0.5])) == 3.0
    assert solve_program(program, Settings()).bound == pytest.approx(3.5)


@pytest.mark.parametrize("seed", range(30))
def test_integer_programs_by_rounds_have_the_optimum_of_all_rows(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, budget_nbytes = draw_chain(seed)
    program = assemble_whole(small, budget_nbytes, 2)
    monkeypatch.setattr(highs, "_MANY", 0)
    monkeypatch.setattr(highs, "_LONG", 10**6)
    whole = solve_program(program, Settings())
    monkeypatch.setattr(highs, "_LONG", 2)
    rounds = solve_program(program, Settings())
    assert rounds.status == whole.status
    assert rounds.objective == pytest.approx(whole.objective)
    assert rounds.bound == pytest.approx(whole.bound)


@pytest.mark.parametrize("is_integer", [True, False])
def test_a_bound_that_is_good_enough_ends_a_solve(
    monkeypatch: pytest.MonkeyPatch, *, is_integer: bool
) -> None:
    monkeypatch.setattr(highs, "_LONG", 20)
    small = training_chain(N_LAYERS)
    program = assemble_whole(small, N_LAYERS // 4, 4)
    program = program if is_integer else relax(program)
    enough = program.offset + 1
    result = solve_program(program, Settings(target=enough))
    whole, _ = solve_whole(relax(program))
    assert (result.status, enough <= result.bound) == ("limit", True)
    assert enough < whole.objective
