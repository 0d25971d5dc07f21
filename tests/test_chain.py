"""The program of a chain of stages against every schedule of the class, tried one by one."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

from builders import chain as linear
from builders import op, problem, random_training, training_chain
from chain_oracle import find_best_chain
from chain_problems import draw_budget, draw_chain, random_gaps
from checkmate.folding import fold_views
from checkmate.graph import OpId
from checkmate.heuristics.staged import order_in_stages
from checkmate.liveness import insert_frees
from checkmate.milp.assemble import make_clock
from checkmate.milp.chain import (
    Chain,
    Stage,
    arrange,
    is_chain_of_stages,
    split_windows,
)
from checkmate.milp.chain_assemble import assemble
from checkmate.milp.chain_encode import decode, encode, join_windows
from checkmate.milp.chain_frame import Frame, make_bounding_frame
from checkmate.milp.chain_rows import FAMILIES
from checkmate.milp.encode import is_frontier_advancing
from checkmate.milp.model import Program
from checkmate.problem import Problem
from checkmate.simulate import simulate
from checkmate.solver.highs import solve_program
from checkmate.solver.result import Settings
from oracle import find_best_time

N_INSTANCES = 1000
BLOCK = 25


@dataclass(frozen=True)
class Case:
    """A random problem, its chain, and the best schedule of the class; None: none fits."""

    small: Problem
    budget_nbytes: int
    chain: Chain
    best_ns: int | None
    order: tuple[OpId, ...]

    def frame(self, depth: int | None) -> Frame:
        return make_bounding_frame(self.chain, self.small, self.budget_nbytes, depth)


@cache
def case(seed: int) -> Case:
    return try_all(*draw_chain(seed))


def try_all(small: Problem, budget_nbytes: int) -> Case:
    best = find_best_chain(small, budget_nbytes)
    chain = arrange(small.graph)
    assert chain is not None
    best_ns, order = (None, ()) if best is None else best
    return Case(small, budget_nbytes, chain, best_ns, order)


def optimum(given: Case, program: Program) -> float:
    """Return the optimum in ns; infinite when there is no solution."""
    result = solve_program(program, Settings())
    assert result.status in ("solved", "infeasible")
    return result.objective * make_clock(given.small).unit_ns


def relax(program: Program) -> Program:
    return replace(program, is_integer=np.zeros(program.n_cols, dtype=np.bool_))


def check_bounds(given: Case, depth: int, lazy_stages: list[int]) -> None:
    """Require the bounds of ``depth`` to be none above the best of the class."""
    best_ns = np.inf if given.best_ns is None else given.best_ns
    frame, clock = given.frame(depth), make_clock(given.small)
    lazy = assemble(frame, clock, lazy_stages).program
    full = assemble(frame, clock, range(len(given.chain.stages))).program
    relaxed_ns = optimum(given, relax(lazy))
    assert relaxed_ns <= best_ns + 1e-3
    assert relaxed_ns - 1e-3 <= optimum(given, full) <= best_ns + 1e-3


def check_optimum(given: Case) -> None:
    """Require the optimum with all recomputes and rows to be the best of the class."""
    stages = range(len(given.chain.stages))
    whole = assemble(given.frame(None), make_clock(given.small), stages)
    best_ns = np.inf if given.best_ns is None else given.best_ns
    assert optimum(given, whole.program) == pytest.approx(best_ns, abs=1e-3)


def check_encoding(given: Case, depth: int | None) -> None:
    """Require the schedule of ``given`` to keep every row at no more than its own cost."""
    windows = split_windows(given.chain, given.order)
    assert windows is not None
    frame, clock = given.frame(depth), make_clock(given.small)
    whole = assemble(frame, clock, range(len(given.chain.stages)))
    program = whole.program
    values = encode(frame, whole.windows, program.n_cols, windows)
    sums = np.append(0.0, np.cumsum(program.values * values[program.indices]))
    used = sums[program.starts[1:]] - sums[program.starts[:-1]]
    assert (used <= program.row_upper + 1e-6).all()
    assert (program.lower <= values).all()
    cost_ns = clock.unit_ns * (program.offset + program.cost @ values)
    assert cost_ns <= (given.best_ns or 0) + 1e-6
    assert depth is not None or cost_ns == pytest.approx(given.best_ns)
    assert depth is not None or decode(frame, values) == windows


@pytest.mark.parametrize("first", range(0, N_INSTANCES, BLOCK))
def test_the_program_agrees_with_trying_all_schedules_of_the_class(first: int) -> None:
    for seed in range(first, first + BLOCK):
        given = case(seed)
        lazy_stages = [s for s in range(len(given.chain.stages)) if (s + seed) % 2]
        check_optimum(given)
        check_bounds(given, 1 + seed % 2, lazy_stages)
        for depth in (1, 2, None) if given.best_ns is not None else ():
            check_encoding(given, depth)


@pytest.mark.parametrize("seed", [186, 767])
def test_what_only_deep_recomputes_read_may_leave_memory_in_between(seed: int) -> None:
    rng = random.Random(seed)
    given = try_all(*draw_budget(rng, random_gaps(rng)))
    check_optimum(given)
    check_encoding(given, 1)
    check_bounds(given, 1, [])


@pytest.mark.parametrize("seed", range(1, 6))
def test_schedules_of_larger_graphs_keep_every_row_at_any_depth(seed: int) -> None:
    given = draw_large(seed)
    n_forward = given.chain.n_forward
    ops = tuple(
        replace(op_, recomputable=op_.recomputable and is_forward)
        for op_, is_forward in zip(given.small.graph.ops, given.chain.is_forward, strict=True)
    )
    pinned = Problem(replace(given.small.graph, ops=ops), given.small.costs)
    orders = list(order_in_stages(pinned, given.budget_nbytes, n_forward))
    assert len(orders) > 3
    for order in orders:
        assert split_windows(given.chain, order) is not None
        time_ns = simulate(given.small, insert_frees(given.small.graph, order)).time_ns
        for depth in (1, 2, 5):
            check_encoding(replace(given, best_ns=time_ns, order=order), depth)


def test_the_instances_are_a_fair_mix() -> None:
    cases = [case(seed) for seed in range(200)]
    assert sum(given.best_ns is None for given in cases) > 20
    again = [g for g in cases if g.best_ns is not None and g.best_ns > g.small.costs.total_ns]
    assert len(again) > 80
    frames = [given.frame(1) for given in again]
    assert sum(any(frame.columns.returns.values()) for frame in frames) > 20
    assert sum(any(len(o.outputs) > 1 for o in g.small.graph.ops) for g in again) > 40
    assert sum(any(g.chain.is_forward[g.chain.n_forward :]) for g in again) > 10


@pytest.mark.parametrize("family", ["run", "read", "retention", "memory"])
def test_without_one_family_of_rows_some_optimum_is_wrong(family: str) -> None:
    rest = tuple(add_rows for name, add_rows in FAMILIES.items() if name != family)
    cases = [given for given in map(case, range(60)) if given.best_ns is not None]
    for given in cases:
        stages = range(len(given.chain.stages))
        whole = assemble(given.frame(None), make_clock(given.small), stages, rest)
        if optimum(given, whole.program) < (given.best_ns or 0) - 1e-3:
            return
    pytest.fail("no optimum changed")


def test_the_closure_rows_close_gaps_of_the_relaxation() -> None:
    rest = tuple(add_rows for name, add_rows in FAMILIES.items() if name != "closure")
    raised = 0
    for seed in range(10):
        given = draw_large(seed)
        frame, clock = given.frame(4), make_clock(given.small)
        without = optimum(given, relax(assemble(frame, clock, (), rest).program))
        raised += optimum(given, relax(assemble(frame, clock, ()).program)) > without + 1e-3
    assert raised >= 3


def draw_large(seed: int) -> Case:
    """Return a random problem that is too large to try all schedules, at 70 % of its peak."""
    small = fold_views(random_training(random.Random(seed), 20)).folded
    chain = arrange(small.graph)
    assert chain is not None
    in_order = tuple(OpId(k) for k in range(len(small.graph.ops)))
    peak = simulate(small, insert_frees(small.graph, in_order)).peak
    return Case(small, peak.nbytes * 7 // 10, chain, None, ())


@pytest.mark.parametrize("first", range(0, 200, BLOCK))
def test_a_chain_of_stages_is_frontier_advancing_and_is_known_as_one(first: int) -> None:
    for seed in range(first, first + BLOCK):
        given = case(seed)
        if given.best_ns is None:
            continue
        assert is_chain_of_stages(given.small.graph, given.order), seed
        assert is_frontier_advancing(given.small.graph, given.order), seed
        simulation = simulate(given.small, insert_frees(given.small.graph, given.order))
        assert simulation.time_ns == given.best_ns, seed
        assert simulation.peak.nbytes <= given.budget_nbytes, seed
        windows = split_windows(given.chain, given.order)
        assert windows is not None
        assert join_windows(given.chain, windows) == given.order, seed


def test_a_graph_without_backward_ops_is_no_chain() -> None:
    small = linear(4, 2, 1)
    assert arrange(small.graph) is None
    assert not is_chain_of_stages(small.graph, [OpId(0), OpId(1), OpId(2)])


def late_transpose() -> Problem:
    """Return a chain whose backward pass has a forward op."""
    return problem(
        op("f", "x"), op("g", "f"), op("loss", "g"), op("b2", "loss g", backward=True),
        op("b1", "b2", backward=True), op("t", "f"), op("c", "b1", backward=True),
        op("b0", "c t", backward=True), op("norm", "g", recomputable=False),
        outputs="b0 norm", resident={"x": 1},
    )  # fmt: skip


def test_a_stage_ends_with_an_op_that_reads_or_makes_forward_tensors() -> None:
    chain = arrange(late_transpose().graph)
    assert chain is not None
    assert chain.n_forward == 3
    names = [op_.name for op_ in chain.graph.ops]
    assert [n for n, is_ in zip(names, chain.is_forward, strict=True) if is_] == [
        "f", "g", "loss", "t",
    ]  # fmt: skip
    assert chain.stages == (Stage(3, 3), Stage(4, 5), Stage(6, 7), Stage(8, 8))


@pytest.mark.parametrize(
    ("names", "is_one"),
    [
        ("f g loss b2 b1 t c b0 norm", True),
        ("f g loss b2 b1 f t c b0 norm", True),
        ("f g loss f g loss b2 b1 f t c f t b0 f g norm", True),
        ("f g loss b2 b1 t c f b0 norm", True),  # b0 descends from f through t
        ("f g loss b2 t b1 c b0 norm", False),  # not in file order
        ("f g f loss b2 b1 t c b0 norm", False),  # a recompute in the forward pass
        ("f g loss b2 b1 t c b0 b1 norm", False),  # a backward op runs twice
        ("f g loss b2 b1 t f c b0 norm", False),  # before an op that reads no forward tensor
        ("f g loss b2 b1 t c t f b0 norm", False),  # descends
        ("f g loss b2 b1 g t c b0 norm", False),  # t does not descend from g
        ("f g loss b2 b1 t c b0", False),
    ],
)
def test_what_is_a_chain_of_stages(names: str, *, is_one: bool) -> None:
    graph = late_transpose().graph
    ids = {op_.name: OpId(i) for i, op_ in enumerate(graph.ops)}
    assert is_chain_of_stages(graph, [ids[name] for name in names.split()]) == is_one


def test_a_chain_of_stages_takes_no_less_than_the_best_of_all_on_a_linear_network() -> None:
    for budget_nbytes, best_ns in ((4, 26), (5, 22), (6, 21)):
        small = training_chain(8)
        assert find_best_time(small, budget_nbytes) == best_ns
        chain = arrange(small.graph)
        assert chain is not None
        frame = make_bounding_frame(chain, small, budget_nbytes, None)
        whole = assemble(frame, make_clock(small), range(len(chain.stages)))
        result = solve_program(whole.program, Settings())
        assert round(result.objective) == best_ns
