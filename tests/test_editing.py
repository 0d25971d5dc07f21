"""Orders under change: memory and events agree with the simulator after every change."""

from __future__ import annotations

import random

import pytest

from builders import chain, op, problem, random_training
from checkmate.folding import fold_views
from checkmate.graph import OpId
from checkmate.heuristics.editing import EditedOrder
from checkmate.heuristics.tables import make_tables
from checkmate.liveness import insert_frees
from checkmate.milp.encode import is_frontier_advancing
from checkmate.problem import Problem
from checkmate.schedule import Compute
from checkmate.simulate import simulate


def turns(n: int) -> tuple[int, ...]:
    return tuple(k * n + k for k in range(n))


def order_of(edited: EditedOrder) -> tuple[OpId, ...]:
    return tuple(OpId(key % edited.tables.n_ops) for key in edited.keys)


def used_by_computes(small: Problem, order: tuple[OpId, ...]) -> list[int]:
    schedule = insert_frees(small.graph, order)
    used = simulate(small, schedule).used_nbytes
    steps = zip(schedule.instructions, used, strict=True)
    return [nbytes for step, nbytes in steps if isinstance(step, Compute)]


def excess(small: Problem, order: tuple[OpId, ...], budget_nbytes: int) -> int:
    return sum(max(0, used - budget_nbytes) for used in used_by_computes(small, order))


def test_a_recompute_takes_a_tensor_out_of_memory_until_it_is_read() -> None:
    small = problem(
        op("a", nbytes=8), op("b", "a", nbytes=4), op("c", "b", nbytes=2), op("d", "a c"),
        outputs="d",
    )  # fmt: skip
    edited = EditedOrder(make_tables(small), turns(4), 13)
    assert edited.find_worst() == (2 * 4 + 2, 1)
    edited.insert(3 * 4 + 0)
    assert order_of(edited) == (0, 1, 2, 0, 3)
    assert edited.count_excess_nbytes() == 0
    assert edited.time_ns == 5


def test_taking_back_a_change_leaves_what_was_before() -> None:
    small = chain(3, 2, 4, 1)
    edited = EditedOrder(make_tables(small), turns(4), 6)
    before = (order_of(edited), edited.count_excess_nbytes(), edited.events)
    edited.mark()
    edited.insert(2 * 4 + 0)
    edited.insert(2 * 4 + 1)
    edited.remove(2 * 4 + 0)
    edited.undo()
    assert (order_of(edited), edited.count_excess_nbytes(), edited.events) == before
    assert edited.late == []


@pytest.mark.parametrize("seed", range(40))
def test_memory_is_that_of_the_simulator_after_any_changes(seed: int) -> None:
    rng = random.Random(seed)
    small = fold_views(random_training(rng, 5)).folded
    n = len(small.graph.ops)
    edited = EditedOrder(make_tables(small), turns(n), 9)
    places = [
        stage * n + k for stage in range(n) for k in range(stage) if small.graph.ops[k].recomputable
    ]
    for _ in range(60):
        key = rng.choice(places)
        change = edited.remove if edited.is_late(key) else edited.insert
        change(key)
        assert is_frontier_advancing(small.graph, order_of(edited))
        assert edited.count_excess_nbytes() == excess(small, order_of(edited), 9)
        used = used_by_computes(small, order_of(edited))
        worst, over_nbytes = edited.find_worst()
        assert (edited.keys.index(worst), over_nbytes) == (used.index(max(used)), max(used) - 9)
        assert edited.time_ns == sum(small.costs.time_ns[k] for k in order_of(edited))
