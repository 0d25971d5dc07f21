"""Frees that belong to an order of computes."""

from __future__ import annotations

import contextlib
import itertools
import random

import pytest

from builders import chain, op, problem, random_training
from checkmate.errors import ScheduleError
from checkmate.graph import OpId, TensorId
from checkmate.liveness import insert_frees, remove_unread
from checkmate.problem import Problem
from checkmate.schedule import Compute, Free, Schedule
from checkmate.simulate import simulate


def ids(*numbers: int) -> list[OpId]:
    return [OpId(number) for number in numbers]


def ids_of(*numbers: int) -> tuple[OpId, ...]:
    return tuple(ids(*numbers))


def test_a_tensor_is_freed_after_its_last_use() -> None:
    small = chain(4, 2, 1)
    schedule = insert_frees(small.graph, ids(0, 1, 2))
    assert simulate(small, schedule).used_nbytes == (4, 6, 6, 3, 3)


def test_a_tensor_that_is_made_again_is_freed_after_its_last_read_before_that() -> None:
    small = problem(op("a"), op("b", "a"), op("c", "b"), op("d", "a c"), outputs="d")
    schedule = insert_frees(small.graph, ids(0, 1, 2, 0, 3))
    assert schedule.instructions[:3] == (Compute(OpId(0)), Compute(OpId(1)), Free(TensorId(0)))


def test_an_output_that_nothing_reads_is_freed_at_once() -> None:
    small = problem(op("a", makes={"y": 1, "mask": 2}), op("b", "y"), outputs="b")
    schedule = insert_frees(small.graph, ids(0, 1))
    assert schedule.instructions[:2] == (Compute(OpId(0)), Free(TensorId(1)))


def test_a_graph_output_is_kept_from_its_last_compute() -> None:
    small = problem(op("a"), op("b", "a"), outputs="a b")
    schedule = insert_frees(small.graph, ids(0, 1, 0))
    assert schedule.instructions == (
        Compute(OpId(0)), Compute(OpId(1)), Free(TensorId(0)), Compute(OpId(0)),
    )  # fmt: skip


def test_a_compute_that_nothing_reads_before_the_next_of_its_op_is_left_out() -> None:
    small = problem(op("a"), op("b", "a"), op("c"), op("d", "c b"), outputs="d")
    assert remove_unread(small.graph, ids(0, 1, 2, 0, 1, 3)) == ids_of(2, 0, 1, 3)


def test_the_last_compute_is_left_out_when_an_earlier_one_was_read() -> None:
    small = problem(op("a"), op("b", "a"), outputs="b")
    assert remove_unread(small.graph, ids(0, 1, 0)) == ids_of(0, 1)


def test_the_last_compute_of_a_graph_output_stays() -> None:
    small = problem(op("a"), op("b", "a"), outputs="a b")
    assert remove_unread(small.graph, ids(0, 1, 0)) == ids_of(0, 1, 0)


def test_an_op_that_nothing_reads_keeps_one_compute() -> None:
    small = problem(op("a"), op("b"), outputs="b")
    assert remove_unread(small.graph, ids(0, 0, 1)) == ids_of(0, 1)


@pytest.mark.parametrize("seed", range(30))
def test_leaving_out_what_is_unread_does_not_raise_the_peak(seed: int) -> None:
    small = random_training(random.Random(seed), 3)
    for schedule in _schedules_with_one_recompute(small):
        less = insert_frees(small.graph, remove_unread(small.graph, schedule.order))
        before, after = simulate(small, schedule), simulate(small, less)
        assert after.peak.nbytes <= before.peak.nbytes
        assert after.time_ns <= before.time_ns


def test_reading_what_was_never_made_is_an_error() -> None:
    with pytest.raises(ScheduleError, match="'op1' reads tensor 'op0'"):
        insert_frees(chain(1, 1).graph, ids(1))


@pytest.mark.parametrize("seed", range(30))
def test_no_placement_of_frees_uses_less_at_any_compute(seed: int) -> None:
    rng = random.Random(seed)
    small = random_training(rng, 3)
    best = rng.choice(_schedules_with_one_recompute(small))
    for moved in _delay_one_free(best):
        try:
            other = _used_at_computes(small, moved)
        except ScheduleError:
            continue
        assert all(a <= b for a, b in zip(_used_at_computes(small, best), other, strict=True))


def _schedules_with_one_recompute(small: Problem) -> list[Schedule]:
    n_ops = len(small.graph.ops)
    found = []
    for again, at in itertools.product(range(n_ops), range(n_ops)):
        if again < at and small.graph.ops[again].recomputable:
            with contextlib.suppress(ScheduleError):
                order = ids(*range(at), again, *range(at, n_ops))
                schedule = insert_frees(small.graph, order)
                simulate(small, schedule)
                found.append(schedule)
    return found or [insert_frees(small.graph, ids(*range(n_ops)))]


def _used_at_computes(small: Problem, schedule: Schedule) -> list[int]:
    used = simulate(small, schedule).used_nbytes
    pairs = zip(used, schedule.instructions, strict=True)
    return [nbytes for nbytes, step in pairs if isinstance(step, Compute)]


def _delay_one_free(schedule: Schedule) -> list[Schedule]:
    steps = schedule.instructions
    return [
        Schedule((*steps[:i], steps[i + 1], steps[i], *steps[i + 2 :]))
        for i in range(len(steps) - 1)
        if isinstance(steps[i], Free) != isinstance(steps[i + 1], Free)
    ]
