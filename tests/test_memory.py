"""What is needed of memory at one moment of a run."""

from __future__ import annotations

import pytest

from builders import op, problem
from checkmate.graph import TensorId
from checkmate.heuristics.memory import NEVER, Memory
from checkmate.heuristics.tables import make_tables
from checkmate.problem import Problem

A, B, C, D = map(TensorId, range(4))
SMALL = problem(
    op("a", nbytes=4), op("b", "a", nbytes=2), op("c", "b"), op("d", nbytes=1), op("e", "c d"),
    op("f", "e b"), outputs="f",
)  # fmt: skip


def run_stages(small: Problem, n_stages: int) -> Memory:
    """Return memory after ``n_stages`` stages that keep all they make."""
    memory = Memory(make_tables(small))
    for stage in range(n_stages):
        for made in small.graph.ops[stage].outputs:
            memory.add(made)
        memory.end_stage()
    return memory


def test_a_tensor_is_needed_by_the_next_op_to_read_it() -> None:
    memory = run_stages(SMALL, 4)
    assert [memory.find_need(t) for t in (A, B, C, D)] == [NEVER, 5, 4, 4]


@pytest.mark.parametrize("removed", [(B, C), (C, B)])
def test_a_tensor_is_needed_for_those_that_are_made_from_it(removed: tuple[TensorId, ...]) -> None:
    memory = run_stages(SMALL, 4)
    for tensor in removed:
        memory.remove(tensor)
    assert memory.find_need(A) == 4


def test_a_tensor_made_again_is_needed_no_more_than_before() -> None:
    memory = run_stages(SMALL, 4)
    memory.remove(C)
    memory.remove(B)
    memory.add(B)
    memory.add(C)
    assert memory.find_need(A) == NEVER


def test_what_is_missing_is_found_through_what_is_missing() -> None:
    memory = run_stages(SMALL, 4)
    memory.remove(B)
    memory.remove(C)
    assert memory.find_missing((C, D)) == [1, 2]
    memory.remove(A)
    assert memory.find_missing((C, D)) == [0, 1, 2]


def test_what_can_be_made_once_is_needed_by_what_could_not_be_made_without_it() -> None:
    small = problem(
        op("a", recomputable=False), op("b", "a"), op("c", "b"), op("d"), op("e", "c"),
        outputs="e",
    )  # fmt: skip
    memory = run_stages(small, 4)
    assert memory.find_need(A) == 4
    assert not memory.is_needed_now(A)
    memory.remove(B)
    memory.remove(C)
    assert memory.is_needed_now(A)


def test_a_graph_output_is_needed_in_the_last_stage() -> None:
    small = problem(op("a"), op("b"), op("c", "b"), outputs="a c")
    memory = run_stages(small, 2)
    assert memory.find_need(A) == 2


def test_memory_counts_each_tensor_once() -> None:
    memory = run_stages(SMALL, 2)
    memory.add(A)
    assert memory.used_nbytes == 6
    memory.remove(A)
    assert memory.used_nbytes == 2
