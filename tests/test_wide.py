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


@cache
def case(seed: int) -> Case:
    rng = random.Random(seed)
    make = (random_layered, random_training, random_chain)[seed % 3]
    small = fold_views(make(rng, (6, 3, 3)[seed % 3])).folded
    least_nbytes, _ = smallest_conceivable_nbytes(small)
    in_order = tuple(OpId(k) for k in range(len(small.graph.ops)))
    most_nbytes = simulate(small, insert_frees(small.graph, in_order)).peak.nbytes
    budget_nbytes = rng.randint(least_nbytes, max(least_nbytes, most_nbytes - 1))
    return Case(small, budget_nbytes, find_best_time(small, budget_nbytes))


@pytest.mark.parametrize("block", range(N_INSTANCES // BLOCK))
def test_no_bound_is_above_the_best_of_all_schedules(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        bound_ns = case(seed).bound(1 + seed // 3 % 2, with_windows=seed % 2 == 0)
        best_ns = case(seed).best_ns
        if best_ns is not None:
            assert bound_ns is not None, f"seed {seed}: called infeasible"
            assert bound_ns <= best_ns, f"seed {seed}"
