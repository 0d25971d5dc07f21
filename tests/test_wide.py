"""The program that bounds all frontier-advancing schedules, against every one of them."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

from builders import OpSpec, op, problem, random_training, view
from chain_problems import random_chain
from checkmate.folding import fold_views
from checkmate.graph import OpId
from checkmate.liveness import insert_frees
from checkmate.milp.assemble import make_clock
from checkmate.milp.wide_assemble import assemble
from checkmate.milp.wide_rows import make_frame
from checkmate.problem import Problem
from checkmate.search.bound import smallest_conceivable_nbytes
from checkmate.simulate import simulate
from checkmate.solver.highs import solve_program
from checkmate.solver.result import MilpResult, Settings
from oracle import find_best_time

N_INSTANCES = 1000
BLOCK = 50


@dataclass(frozen=True)
class Case:
    """A random problem and the least time of a frontier-advancing schedule; None: none fits."""

    small: Problem
    budget_nbytes: int
    best_ns: int | None

    def ask(self, depth: int, *, with_windows: bool, is_relaxed: bool = False) -> MilpResult:
        frame = make_frame(self.small, self.budget_nbytes, depth)
        program = assemble(frame, make_clock(self.small), with_windows=with_windows)
        if is_relaxed:
            program = replace(program, is_integer=np.zeros(program.n_cols, dtype=np.bool_))
        return solve_program(program, Settings())

    def bound(self, depth: int, *, with_windows: bool) -> int | None:
        result = self.ask(depth, with_windows=with_windows)
        if result.status == "infeasible":
            return None
        return make_clock(self.small).round_bound(result.bound)


def random_layered(rng: random.Random, n_ops: int) -> Problem:
    """Return a random problem without a backward pass, with whatever an op may have."""
    specs: list[OpSpec] = []
    made: list[str] = []
    for i in range(n_ops):
        reads = rng.sample(made[-4:], k=min(len(made), rng.choice((1, 1, 2, 2, 3)))) or ["x"]
        makes = {f"o{i}": rng.randint(1, 6)}
        if rng.random() < 0.25:
            makes[f"p{i}"] = rng.randint(1, 4)
        specs.append(
            op(f"o{i}", " ".join(reads), makes=makes, time_ns=rng.randint(0, 9),
               workspace_nbytes=rng.choice((0, 0, 0, 3)), recomputable=rng.random() > 0.1)
        )  # fmt: skip
        made.extend(makes)
        if rng.random() < 0.15:
            specs.append(view(f"v{i}", f"o{i}", time_ns=0))
            made.append(f"v{i}")
    read = {name for spec in specs for name in spec.reads}
    unread = [name for name in made if name not in read and rng.random() < 0.7]
    return problem(*specs, outputs=" ".join(unread or made[-1:]), resident={"x": 2})


def random_pair_chain(rng: random.Random, n_layers: int) -> Problem:
    """Return a chain of layers, some with two outputs, whose gradients read one or both late."""
    specs: list[OpSpec] = []
    for i in range(n_layers):
        makes = {f"f{i}": rng.randint(1, 5)}
        if rng.random() < 0.4:
            makes[f"g{i}"] = rng.randint(1, 4)
        specs.append(op(f"f{i}", f"f{i - 1}" if i else "", makes=makes, time_ns=rng.randint(1, 9)))
    made = [name for spec in specs for name in spec.makes]
    gradient = made[-1] if made[-1][0] == "f" else made[-2]
    for i in reversed(range(n_layers)):
        saved = [name for name in specs[i].makes if rng.random() < 0.8]
        saved += rng.sample(made, k=rng.choice((0, 0, 1)))
        specs.append(
            op(f"b{i}", " ".join((gradient, *saved)), nbytes=rng.randint(1, 3),
               time_ns=rng.randint(1, 9), recomputable=rng.random() < 0.3)
        )  # fmt: skip
        gradient = f"b{i}"
    return problem(*specs, outputs=gradient)


@cache
def case(seed: int) -> Case:
    rng = random.Random(seed)
    shapes = (random_layered, 6), (random_training, 3), (random_chain, 3), (random_pair_chain, 4)
    make, size = shapes[seed % 4]
    small = fold_views(make(rng, size)).folded
    least_nbytes, _ = smallest_conceivable_nbytes(small)
    in_order = tuple(OpId(k) for k in range(len(small.graph.ops)))
    most_nbytes = simulate(small, insert_frees(small.graph, in_order)).peak.nbytes
    half_nbytes = max(least_nbytes, (least_nbytes + most_nbytes) // 2)
    budget_nbytes = rng.randint(least_nbytes, half_nbytes)
    return Case(small, budget_nbytes, find_best_time(small, budget_nbytes))


@pytest.mark.parametrize("block", range(N_INSTANCES // BLOCK))
def test_no_bound_is_above_the_best_of_all_schedules(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        bound_ns = case(seed).bound(1 + seed // 4 % 2, with_windows=seed // 8 % 2 == 0)
        best_ns = case(seed).best_ns
        if best_ns is not None:
            assert bound_ns is not None, f"seed {seed}: called infeasible"
            assert bound_ns <= best_ns, f"seed {seed}"


def test_the_bound_is_the_optimum_of_most_problems_that_recompute() -> None:
    found = [case(seed) for seed in range(120)]
    open_ = [one for one in found if (one.best_ns or 0) > one.small.costs.total_ns]
    reached = [one for one in open_ if one.bound(2, with_windows=True) == one.best_ns]
    assert len(open_) > 40
    assert len(reached) > 0.8 * len(open_)


def test_a_relaxation_is_no_better_than_the_program() -> None:
    relaxed = case(3).ask(1, with_windows=True, is_relaxed=True)
    whole = case(3).ask(1, with_windows=True)
    assert relaxed.bound <= whole.bound + 1e-6


def test_a_budget_that_one_op_exceeds_is_infeasible() -> None:
    small = problem(op("a", nbytes=3), op("b", "a", nbytes=3), outputs="b")
    assert Case(small, 5, None).bound(1, with_windows=True) is None
    assert Case(small, 6, 2).bound(1, with_windows=True) == 2
