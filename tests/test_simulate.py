"""Each rule of the judge, by hand."""

from __future__ import annotations

import pytest

from builders import chain, op, problem, view
from checkmate.errors import ScheduleError
from checkmate.graph import OpId, TensorId
from checkmate.problem import Problem
from checkmate.schedule import Compute, Free, Schedule
from checkmate.simulate import simulate


def run(small: Problem, text: str) -> tuple[int, ...]:
    """Return the memory of ``text``: names of ops to compute, ``-name`` to free a tensor."""
    return simulate(small, read(small, text)).used_nbytes


def read(small: Problem, text: str) -> Schedule:
    ops = {op_.name: OpId(i) for i, op_ in enumerate(small.graph.ops)}
    tensors = {tensor.name: TensorId(i) for i, tensor in enumerate(small.graph.tensors)}
    return Schedule(
        tuple(
            Free(tensors[word[1:]]) if word.startswith("-") else Compute(ops[word])
            for word in text.split()
        )
    )


def test_memory_is_inputs_and_outputs_and_a_free_takes_effect_after_itself() -> None:
    assert run(chain(4, 2, 1), "op0 op1 -op0 op2 -op1") == (4, 6, 6, 3, 3)


def test_a_recompute_takes_its_time_again() -> None:
    small = problem(
        op("a", nbytes=4, time_ns=5), op("b", "a", time_ns=7), op("c", "a b"), outputs="c"
    )
    simulation = simulate(small, read(small, "a b -a a c"))
    assert simulation.time_ns == 5 + 7 + 5 + 1
    assert simulation.used_nbytes == (4, 5, 5, 5, 6)


def test_resident_tensors_are_in_memory_throughout() -> None:
    small = problem(op("a", "x", nbytes=2), outputs="a", resident={"x": 10, "unused": 5})
    assert run(small, "a") == (17,)
    assert simulate(small, read(small, "a")).peak.resident_nbytes == 15


def test_a_resident_tensor_cannot_be_freed() -> None:
    small = problem(op("a", "x"), outputs="a", resident={"x": 10})
    with pytest.raises(ScheduleError, match="'x' is freed but is resident"):
        run(small, "a -x")


def test_an_op_cannot_read_what_is_not_in_memory() -> None:
    with pytest.raises(ScheduleError, match="'op1' reads tensor 'op0', not in memory"):
        run(chain(1, 1), "op0 -op0 op1")


def test_an_op_cannot_make_what_is_still_in_memory() -> None:
    with pytest.raises(ScheduleError, match="'op0' makes tensor 'op0', still in memory"):
        run(chain(1, 1), "op0 op0 op1")


def test_workspace_is_in_memory_only_while_its_op_runs() -> None:
    small = problem(op("a", nbytes=4), op("b", "a", workspace_nbytes=9), op("c", "b"), outputs="c")
    simulation = simulate(small, read(small, "a b -a c -b"))
    assert simulation.used_nbytes == (4, 14, 5, 2, 2)
    assert simulation.peak.op == 1
    assert simulation.peak.workspace_nbytes == 9
    assert simulation.peak.live_nbytes == 5
    assert simulation.peak.nbytes == 14


def test_an_op_makes_all_of_its_outputs() -> None:
    small = problem(op("a", makes={"y": 4, "mask": 8}), op("b", "mask"), outputs="b")
    assert run(small, "a -y b -mask") == (12, 12, 9, 9)


def test_a_view_keeps_the_storage_of_its_source() -> None:
    small = problem(op("a", nbytes=4), view("v", "a"), op("b", "v"), outputs="b")
    assert run(small, "a v -a b -v") == (4, 4, 4, 5, 5)


def test_a_view_of_an_old_storage_does_not_share_the_new_one() -> None:
    small = problem(op("a", nbytes=4), view("v", "a"), op("b", "v a"), outputs="b")
    assert run(small, "a v -a a b -a -v") == (4, 4, 4, 8, 9, 9, 5)


def test_a_view_of_a_resident_tensor_is_free() -> None:
    small = problem(view("v", "x"), op("b", "v"), outputs="b", resident={"x": 8})
    assert run(small, "v b -v") == (8, 9, 9)


def test_a_tensor_is_not_freed_twice() -> None:
    with pytest.raises(ScheduleError, match="'op0' is freed but is not in memory"):
        run(chain(1, 1), "op0 op1 -op0 -op0")


def test_every_op_is_computed() -> None:
    with pytest.raises(ScheduleError, match="'op1' is never computed"):
        run(problem(op("op0"), op("op1"), outputs="op0"), "op0")


def test_an_op_that_may_run_once_is_not_recomputed() -> None:
    small = problem(op("a", recomputable=False), op("b", "a"), op("c", "a b"), outputs="c")
    with pytest.raises(ScheduleError, match="'a' is computed twice"):
        run(small, "a b -a a c")


def test_outputs_are_in_memory_at_the_end() -> None:
    with pytest.raises(ScheduleError, match="output tensor 'op1' is not in memory"):
        run(chain(1, 1), "op0 op1 -op1")


def test_the_peak_without_ops_is_what_is_resident() -> None:
    small = problem(outputs="x", resident={"x": 3})
    simulation = simulate(small, Schedule(()))
    assert simulation.peak.op is None
    assert simulation.peak.nbytes == 3
