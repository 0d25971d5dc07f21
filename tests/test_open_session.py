"""Sessions for programs: a rewritten graph runs within its budget, the original does not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import checkmate.runtime
from checkmate.arena import find_arena_peak
from checkmate.costs import unit_costs
from checkmate.errors import InputError, RunError, UsageError
from checkmate.graph import OpId
from checkmate.liveness import insert_frees
from checkmate.onnxio.model import Model
from checkmate.onnxio.read import read_model
from checkmate.onnxio.rewrite import rewrite_model
from checkmate.onnxio.storage import count_held_nbytes, find_arena_rules
from checkmate.problem import Problem
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime import open_session
from checkmate.runtime.inputs import make_inputs
from checkmate.schedule import Schedule
from fake_cuda import fake_in_children, replace_sessions
from onnx_models import save, save_proto

KIB = 1024
# x is dropped after a, and made again for y: at the widest point two tensors less are held.
SINES = """
sines (float[N, 1024] x) => (float[N, 1024] y) {
    [a] a = Sin(x)
    [b] b = Sin(a)
    [c] c = Cos(b)
    [d] d = Sin(c)
    [e] e = Mul(d, b)
    [f] f = Mul(e, a)
    [g] y = Exp(f)
}
"""


def schedule(model: Model, order: str) -> Schedule:
    ops = {op.name: OpId(i) for i, op in enumerate(model.graph.ops)}
    return insert_frees(model.graph, [ops[name] for name in order])


def find_budget(model: Model, planned: Schedule) -> int:
    problem = Problem(model.graph, unit_costs(model.graph))
    arena = find_arena_peak(problem, planned, find_arena_rules(model, "cpu"))
    return count_held_nbytes(model.path, model.dims, "cpu") + arena.reserved_nbytes


def feed(model: Model) -> Mapping[str, np.ndarray]:
    return make_inputs(specify_inputs(model), 0)


def test_a_rewritten_graph_runs_three_times_within_its_budget_and_the_original_does_not(
    tmp_path: Path,
) -> None:
    path = save(tmp_path, SINES)
    model = read_model(path, {"N": 64})
    planned = schedule(model, "abcdabeafg")
    budget_nbytes = find_budget(model, planned)
    assert budget_nbytes < find_budget(model, schedule(model, "abcdefg"))
    rewritten = save_proto(tmp_path, rewrite_model(model, planned), "rewritten.onnx")
    session = open_session(rewritten, budget_nbytes, "cpu", dims={"N": 64})
    feeds = feed(model)
    # A copy, because the array that a run returns lies in the arena.
    outputs = [session.run(None, feeds)[0].copy() for _ in range(3)]
    original = open_session(path, budget_nbytes, "cpu", dims={"N": 64})
    with pytest.raises(Exception, match="Available memory of 0 is smaller than requested bytes"):
        original.run(None, feeds)
    expected = open_session(path, 2 * budget_nbytes, "cpu", dims={"N": 64}).run(None, feeds)[0]
    assert all(np.array_equal(output, expected) for output in outputs)


def test_a_byte_less_than_the_budget_is_not_enough(tmp_path: Path) -> None:
    path = save(tmp_path, "g (float[64, 64] x) => (float[64, 64] y) { a = Exp(x) y = Exp(a) }")
    model = read_model(path, {})
    budget_nbytes = find_budget(model, insert_frees(model.graph, [OpId(0), OpId(1)]))
    assert budget_nbytes == 3 * 16 * KIB
    open_session(path, budget_nbytes, "cpu").run(None, feed(model))
    with pytest.raises(Exception, match="is smaller than requested bytes"):
        open_session(path, budget_nbytes - 1, "cpu").run(None, feed(model))


def test_each_session_keeps_its_own_arena(tmp_path: Path) -> None:
    path = save(tmp_path, "g (float[64, 64] x) => (float[64, 64] y) { a = Exp(x) y = Exp(a) }")
    feeds = feed(read_model(path, {}))
    small = open_session(path, 2 * 16 * KIB, "cpu")
    large = open_session(path, 3 * 16 * KIB, "cpu")
    large.run(None, feeds)
    with pytest.raises(Exception, match="is smaller than requested bytes"):
        small.run(None, feeds)


def test_outputs_that_are_still_held_take_their_place_in_the_arena(tmp_path: Path) -> None:
    path = save(tmp_path, "g (float[64, 64] x) => (float[64, 64] y) { a = Exp(x) y = Exp(a) }")
    feeds = feed(read_model(path, {}))
    session = open_session(path, 3 * 16 * KIB, "cpu")
    held = session.run(None, feeds)
    with pytest.raises(Exception, match="is smaller than requested bytes"):
        session.run(None, feeds)
    del held
    session.run(None, feeds)


def test_inputs_and_initializers_are_taken_off_the_budget(tmp_path: Path) -> None:
    weights = ", ".join(["1.0"] * 64)
    path = save(
        tmp_path,
        "g (float[N, 64] x) => (float[N, 64] y)"
        f"<float[64] w = {{{weights}}}, float[64] unread = {{{weights}}}, float one = {{1.0}}>"
        f"{{ c = Constant <value = float[64] {{{weights}}}> () a = Add(x, w) b = Add(a, one)"
        " y = Add(b, c) }",
    )
    assert count_held_nbytes(path, {"N": 3}, "cpu") == 3 * 256 + 256 + 256
    assert count_held_nbytes(path, {"N": 3}, "cuda") == 3 * 256
    with pytest.raises(UsageError, match=r"inputs and weights of model\.onnx take 1,280 B"):
        open_session(path, 1280, "cpu", dims={"N": 3})


def test_on_cuda_the_inputs_that_a_run_copies_lie_in_the_arena_unless_they_are_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_in_children(tmp_path, monkeypatch)
    replace_sessions(monkeypatch.setattr, "", "")
    path = save(tmp_path, SINES)
    inputs_nbytes = 64 * 4 * KIB

    def find_limit(*, binds_inputs: bool) -> int:
        session = open_session(path, 2**20, "cuda", dims={"N": 64}, binds_inputs=binds_inputs)
        return int(session.get_provider_options()["CUDAExecutionProvider"]["gpu_mem_limit"])

    assert find_limit(binds_inputs=False) == 2**20
    assert find_limit(binds_inputs=True) == 2**20 - inputs_nbytes
    with pytest.raises(UsageError, match="take 262,144 B"):
        open_session(path, inputs_nbytes, "cuda", dims={"N": 64})


def test_a_dimension_without_a_value_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="symbolic dimension 'N'"):
        open_session(save(tmp_path, SINES), 2**30, "cpu")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'.*none.onnx' is not there"):
        open_session(tmp_path / "none.onnx", 2**30, "cpu")


@pytest.mark.parametrize("budget", ["8GiB", "1024", 2.0**30, True, None, 2**70])
def test_a_budget_that_is_no_number_of_bytes_is_refused(tmp_path: Path, budget: object) -> None:
    path = save(tmp_path, SINES)
    with pytest.raises(UsageError, match=f"^budget_nbytes is {budget!r}, not a whole number"):
        open_session(path, budget, "cpu", dims={"N": 1})  # type: ignore[arg-type]


def test_a_budget_may_be_a_number_of_numpy(tmp_path: Path) -> None:
    session = open_session(save(tmp_path, SINES), np.int64(2**20), "cpu", dims={"N": np.int32(2)})
    assert session.get_providers() == ["CPUExecutionProvider"]
    with pytest.raises(UsageError, match="take 4,294,967,296 B"):
        open_session(tmp_path / "model.onnx", 2**32, "cpu", dims={"N": np.int32(2**20)})


@pytest.mark.parametrize("provider", ["gpu", "CPUExecutionProvider", None])
def test_a_provider_that_is_not_known_is_refused(tmp_path: Path, provider: object) -> None:
    with pytest.raises(UsageError, match=f"^provider is {provider!r}, not 'auto'"):
        open_session(save(tmp_path, SINES), 2**30, provider)  # type: ignore[arg-type]


@pytest.mark.parametrize("dims", [["N=4"], {"N": "4"}, {"N": 4.0}, "N=4"])
def test_dimensions_that_are_no_numbers_are_refused(tmp_path: Path, dims: object) -> None:
    with pytest.raises(UsageError, match=r"^dims is .*, not a whole number per name"):
        open_session(save(tmp_path, SINES), 2**30, "cpu", dims=dims)  # type: ignore[arg-type]


def test_the_room_imports_onnxruntime_only_when_a_session_is_opened() -> None:
    code = "import sys, checkmate.runtime; sys.exit('onnxruntime' in sys.modules)"
    source = Path(__file__).parent.parent / "src"
    assert subprocess.run([sys.executable, "-c", code], cwd=source, check=False).returncode == 0


def test_the_room_has_no_other_names() -> None:
    with pytest.raises(AttributeError, match="no attribute 'close_session'"):
        _ = checkmate.runtime.close_session  # type: ignore[attr-defined]


def test_an_op_without_a_kernel_is_named_with_what_to_do(tmp_path: Path) -> None:
    path = save(tmp_path, "g (bfloat16[4, 4] x) => (bfloat16[4, 4] y) { [mm] y = MatMul(x, x) }")
    with pytest.raises(RunError, match="has no kernel on the CPU for MatMul 'mm'") as caught:
        open_session(path, 64 * KIB, "cpu")
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("run it on CUDA, or let the model compute it in float32")


def test_what_onnxruntime_has_against_a_model_is_said_in_its_words(tmp_path: Path) -> None:
    path = save(tmp_path, "g (float[4] x) => (float[4] y) { y = Nonsense(x) }")
    with pytest.raises(RunError, match=r"refuses model.onnx: .*No Op registered for Nonsense"):
        open_session(path, 64 * KIB, "cpu")
