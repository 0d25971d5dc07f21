"""The program that chooses among given computes, against all choices."""

from __future__ import annotations

import random
from itertools import combinations

import numpy as np
import pytest

from builders import op, problem, random_training
from checkmate.folding import fold_views
from checkmate.graph import OpId
from checkmate.heuristics.reopening import Reopener
from checkmate.heuristics.tables import make_tables
from checkmate.milp.assemble import make_clock
from checkmate.milp.pool import Pool
from checkmate.milp.pool_assemble import assemble_choice, decode_choice, encode_choice
from checkmate.problem import Problem
from checkmate.search.claims import run_order
from checkmate.solver.highs import solve_program
from checkmate.solver.result import Settings

N_INSTANCES = 120
BLOCK = 20


def turns_of(small: Problem) -> tuple[int, ...]:
    """Return the keys of the order without recompute."""
    n = len(small.graph.ops)
    return tuple(k * n + k for k in range(n))


def ops_of(small: Problem, keys: tuple[int, ...]) -> list[OpId]:
    return [OpId(key % len(small.graph.ops)) for key in keys]


def can_run(small: Problem, order: list[OpId]) -> bool:
    """Return whether each op runs, and after what it reads was made."""
    made: set[int] = set()
    for k in order:
        reads = small.graph.ops[k].inputs
        if any(small.graph.tensors[e].producer is not None and e not in made for e in reads):
            return False
        made.update(small.graph.ops[k].outputs)
    return len(set(order)) == len(small.graph.ops)


def find_best(pool: Pool, budget_nbytes: int) -> int | None:
    """Return the least time of all choices that run and fit; None: none does."""
    best_ns = None
    optional = sorted(pool.optional)
    for n_left in range(len(optional) + 1):
        for left in combinations(optional, n_left):
            order = ops_of(pool.problem, tuple(key for key in pool.keys if key not in left))
            if can_run(pool.problem, order):
                found = run_order(pool.problem, order)
                fits = found.peak.nbytes <= budget_nbytes
                if fits and (best_ns is None or found.time_ns < best_ns):
                    best_ns = found.time_ns
    return best_ns


def make_case(seed: int) -> tuple[Pool, int]:
    """Return a random pool with at most 11 optional keys, and a budget."""
    rng = random.Random(seed)
    small = fold_views(random_training(rng, rng.randint(4, 7))).folded
    keys = turns_of(small)
    peak_nbytes = run_order(small, ops_of(small, keys)).peak.nbytes
    budget_nbytes = int(peak_nbytes * rng.uniform(0.8, 1.0))
    reopened = Reopener(make_tables(small), budget_nbytes, rng).reopen(keys, rng.randint(2, 8))
    optional = rng.sample(sorted(reopened.optional), min(11, len(reopened.optional)))
    # What is new must stay optional, or else goes.
    chosen = tuple(key for key in reopened.keys if key in keys or key in optional)
    return Pool(small, chosen, frozenset(optional)), budget_nbytes


@pytest.mark.parametrize("first", range(0, N_INSTANCES, BLOCK))
def test_the_program_finds_the_best_of_all_choices(first: int) -> None:
    n_recomputing = 0
    for seed in range(first, first + BLOCK):
        pool, budget_nbytes = make_case(seed)
        clock = make_clock(pool.problem)
        choice, program = assemble_choice(pool, budget_nbytes, clock)
        result = solve_program(program, Settings())
        best_ns = find_best(pool, budget_nbytes)
        assert (result.values is None) == (best_ns is None), seed
        if result.values is not None:
            order = ops_of(pool.problem, decode_choice(pool, choice, result.values))
            found = run_order(pool.problem, order)
            assert found.peak.nbytes <= budget_nbytes, seed
            assert found.time_ns == best_ns == round(result.objective * clock.unit_ns), seed
            n_recomputing += found.time_ns > pool.problem.costs.total_ns
    assert n_recomputing


def test_what_runs_now_is_a_solution_to_begin_from() -> None:
    for seed in range(40):
        pool, _ = make_case(seed)
        turns = frozenset(turns_of(pool.problem))
        peak_nbytes = run_order(
            pool.problem, ops_of(pool.problem, tuple(sorted(turns)))
        ).peak.nbytes
        choice, program = assemble_choice(pool, peak_nbytes, make_clock(pool.problem))
        values = encode_choice(choice, {key: key in turns for key in pool.optional})
        assert (program.find_row_values(values) <= program.row_upper + 1e-9).all()
        assert np.isin(values, (0.0, 1.0)).all()
        assert frozenset(decode_choice(pool, choice, values)) == turns


def test_an_op_that_may_run_only_once_stays_where_it_is() -> None:
    small = problem(
        op("a"), op("b", "a", recomputable=False), op("c", "b"), op("d", "c"), op("e", "d b a"),
        outputs="e",
    )  # fmt: skip
    for seed in range(20):
        reopened = Reopener(make_tables(small), 9, random.Random(seed)).reopen(turns_of(small), 5)
        assert [key for key in reopened.keys if key % 5 == 1] == [6]
        assert 6 not in reopened.optional


def test_the_last_op_runs_last_and_once() -> None:
    for seed in range(20):
        small = fold_views(random_training(random.Random(seed), 3)).folded
        n = len(small.graph.ops)
        reopened = Reopener(make_tables(small), 9, random.Random(seed)).reopen(turns_of(small), 6)
        assert reopened.keys[-1] == n * n - 1
        assert n * n - 1 not in reopened.optional
        assert sum(key % n == n - 1 for key in reopened.keys) == 1


def test_an_op_that_nothing_reads_runs_all_the_same() -> None:
    small = problem(op("a"), op("b", "a"), op("c", "a"), outputs="c")
    pool = Pool(small, turns_of(small), frozenset((4,)))
    choice, program = assemble_choice(pool, 9, make_clock(small))
    result = solve_program(program, Settings())
    assert result.values is not None
    assert decode_choice(pool, choice, result.values) == (0, 4, 8)


def test_an_op_may_run_late_instead_of_twice() -> None:
    # The large output of b waits for the last op alone, and what it reads is small.
    small = problem(
        op("a"), op("b", "a", nbytes=6), op("c", "a", nbytes=5), op("d", "c"), op("e", "d b"),
        outputs="e",
    )  # fmt: skip
    n = 5
    late_b = 4 * n + 1
    pool = Pool(small, tuple(sorted((*turns_of(small), late_b))), frozenset((n + 1, late_b)))
    choice, program = assemble_choice(pool, 9, make_clock(small))
    result = solve_program(program, Settings())
    assert result.values is not None
    order = ops_of(small, decode_choice(pool, choice, result.values))
    assert order == [0, 2, 3, 1, 4]
    assert run_order(small, order).peak.nbytes <= 9
