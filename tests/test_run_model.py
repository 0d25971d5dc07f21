"""Runs in a child process: order, peak, outputs, and every way to fail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import onnx
import pytest

from checkmate.costs import Costs, Origin
from checkmate.errors import OutOfMemoryError, RunError
from checkmate.graph import OpId
from checkmate.liveness import insert_frees
from checkmate.onnxio.read import read_model
from checkmate.problem import Problem
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.arrays import compare_outputs, save_arrays
from checkmate.runtime.execute import RunOptions, RunResult, race_models, run_model
from checkmate.runtime.protocol import RunTask, Settings, TensorSpec
from checkmate.runtime.worker import Limits, Worker
from checkmate.simulate import simulate
from onnx_models import GRAPHS, TRAINING_MLP, save, save_proto

FLOAT, INT64, BFLOAT16 = 1, 7, 16
ONE_THREAD = Settings(threads=1)
SOURCE = Path(__file__).parent.parent / "src"

CONV_CHAIN = """
chain (float[1, 4, 32, 32] x, float[8, 4, 1, 1] w1, float[16, 8, 1, 1] w2, float[2, 16, 1, 1] w3)
  => (float[1, 2, 32, 32] y) {
    a = Conv(x, w1)
    b = Conv(a, w2)
    c = Exp(b)
    y = Conv(c, w3)
}
"""
_STEPS = [f"m{i} = MatMul({f'm{i - 1}' if i else 'x'}, x)" for i in range(20)]
SLOW = f"slow (float[2048, 2048] x) => (float[2048, 2048] m19) {{ {' '.join(_STEPS)} }}"


def run(path: Path, *, n: int = 1, outputs: Path | None = None, **options: object) -> RunResult:
    model = read_model(path, {})
    return run_model(
        path,
        specify_inputs(model),
        RunOptions(ONE_THREAD, n_runs=n, outputs=outputs, **options),  # type: ignore[arg-type]
    )


def test_the_peak_of_a_convolution_chain_is_the_two_largest_neighbours(tmp_path: Path) -> None:
    result = run(save(tmp_path, CONV_CHAIN))
    pixels = 32 * 32 * 4
    inputs_nbytes = 4 * pixels + 4 * (8 * 4 + 16 * 8 + 2 * 16)
    assert result.inputs_nbytes == inputs_nbytes
    assert result.meter == "allocator"
    assert result.run_nbytes == (16 * pixels + 16 * pixels,)
    assert result.peak_nbytes == inputs_nbytes + 32 * pixels


def test_the_peak_of_a_training_mlp_is_the_simulated_one(tmp_path: Path) -> None:
    path = save(tmp_path, TRAINING_MLP)
    model = read_model(path, {"N": 512})
    n_ops = len(model.graph.ops)
    free = Costs((1,) * n_ops, _where_workspace(model.nodes, model.types), Origin("file"))
    schedule = insert_frees(model.graph, [OpId(i) for i in range(n_ops)])
    planned = simulate(Problem(model.graph, free), schedule).peak
    initializers_nbytes = planned.resident_nbytes - sum(
        t.nbytes for t in model.graph.tensors if t.name in {i.name for i in model.proto.graph.input}
    )
    options = RunOptions(ONE_THREAD, initializers_nbytes=initializers_nbytes)
    measured = run_model(path, specify_inputs(model), options)
    assert measured.peak_nbytes == planned.nbytes


def _where_workspace(nodes: object, types: object) -> tuple[int, ...]:
    """Where makes two copies of its result on its way."""
    return tuple(
        2 * 512 * 64 * 4 if node.op_type == "Where" else 0
        for node in nodes  # type: ignore[attr-defined]
    )


def test_outputs_count_as_much_as_what_is_freed(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        "g (float[1000] x) => (float[1000] a, float[1000] b, float[1000] y)"
        "{ a = Exp(x) b = Exp(a) y = Exp(b) }",
    )
    assert run(path, n=3).run_nbytes == (12000, 12000, 12000)


def test_initializers_count_although_the_allocator_does_not_see_them(tmp_path: Path) -> None:
    path = save(tmp_path, "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }")
    assert run(path, initializers_nbytes=8).peak_nbytes == 8 + 8 + 8


def test_shapes_are_hoisted_and_all_else_runs_in_file_order(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        "g (float[8] x) => (float[8] y, int64[1] s)"
        "{ [one] a = Exp(x) [two] b = Exp(a) [three] s = Shape(a) [four] y = Exp(b) }",
    )
    assert run(path, n=2).executed == ("one", "three", "two", "four")


@pytest.mark.parametrize("name", ["gpt2", "mobilenetv1", "resnet50", "unet", "vgg16"])
def test_training_graphs_run_in_file_order_and_repeat_bit_for_bit(
    name: str, tmp_path: Path
) -> None:
    path = GRAPHS / f"{name}-tiny-bN.onnx"
    model = read_model(path, {"N": 2})
    results = [
        run_model(
            path,
            specify_inputs(model),
            RunOptions(ONE_THREAD, n_runs=n, outputs=tmp_path / f"{n}.npz"),
        )
        for n in (1, 2)
    ]
    hoisted = {
        op.name
        for op, node in zip(model.graph.ops, model.nodes, strict=True)
        if node.op_type in ("Shape", "Size")
    }
    assert [op for op in results[0].executed if op not in hoisted] == [
        op.name for op in model.graph.ops if op.name not in hoisted
    ]
    assert results[1].is_repeatable
    assert results[0].outputs is not None
    assert results[1].outputs is not None
    assert compare_outputs(results[0].outputs, results[1].outputs) == ()
    for array in results[0].outputs.read_all().values():
        assert np.isfinite(array).all()


def test_random_ops_without_a_seed_are_not_repeatable(tmp_path: Path) -> None:
    path = save(tmp_path, "g (float[64] x) => (float[64] y) { y = RandomNormalLike(x) }")
    assert not run(path, n=2).is_repeatable


def test_outputs_that_vary_from_run_to_run_are_named(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        "g (float[64] x) => (float[64] y, float[64] z)"
        "{ r = RandomNormalLike(x) y = Exp(r) z = Exp(x) }",
    )
    assert run(path, n=3).varying == ("y",)
    assert run(path).varying == ()


def test_the_resident_set_agrees_with_the_allocator(tmp_path: Path) -> None:
    body = " ".join(f"{b} = Exp({a})" for a, b in zip("xabcd", "abcdy", strict=True))
    path = save(tmp_path, f"g (float[4000000] x) => (float[4000000] y) {{ {body} }}")
    counted = run(path).run_nbytes
    pages = run(path, n=3, meter="resident").run_nbytes
    assert counted == (32_000_000,)
    assert len(pages) == 3
    assert max(pages) == pytest.approx(32_000_000, abs=1_500_000)


def test_an_output_that_is_listed_twice_is_there_once(tmp_path: Path) -> None:
    proto = onnx.load(save(tmp_path, CONV_CHAIN))
    proto.graph.output.append(proto.graph.output[0])
    path = save_proto(tmp_path, proto)
    assert run(path, outputs=tmp_path / "y.npz").outputs is not None


def test_without_a_meter_there_is_no_peak(tmp_path: Path) -> None:
    result = run(save(tmp_path, CONV_CHAIN), meter="none")
    assert result.peak_nbytes is None
    assert len(result.executed) == 4


def test_timed_runs_are_as_many_as_asked_for(tmp_path: Path) -> None:
    result = run(save(tmp_path, CONV_CHAIN), n=0, n_timed_runs=3)
    assert len(result.times_ns) == 3
    assert result.time_ns == sorted(result.times_ns)[1]
    assert result.time_ns > 0
    assert result.executed == ()


def test_no_run_is_timed_after_its_time_is_up_but_one_always_is(tmp_path: Path) -> None:
    result = run(save(tmp_path, CONV_CHAIN), n=0, n_timed_runs=1000, max_timed_ns=0)
    assert len(result.times_ns) == 1


def test_models_that_race_are_timed_in_the_order_given(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    one = f"one (float[512, 512] x) => (float[512, 512] m0) {{ {_STEPS[0]} }}"
    many = SLOW.replace("2048", "512")
    paths = [save(tmp_path, many), save(tmp_path / "one", one)]
    specs = specify_inputs(read_model(paths[0], {}))
    slow, fast = race_models(paths, specs, ONE_THREAD, 3, 2)
    assert len(slow) == len(fast) == 6
    assert min(slow) > 3 * max(fast)


def test_inputs_come_from_a_file(tmp_path: Path) -> None:
    path = save(tmp_path, "g (float[2] x, int64[2] i) => (float[2] y) { y = Gather(x, i) }")
    feeds = {"x": np.array([5, 7], np.float32), "i": np.array([1, 0])}
    save_arrays(tmp_path / "in.npz", feeds)
    result = run_model(path, tmp_path / "in.npz", RunOptions(outputs=tmp_path / "out.npz"))
    assert result.outputs is not None
    assert result.outputs.read("y").tolist() == [7, 5]


def test_types_that_numpy_does_not_know_go_in_and_out(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        "g (bfloat16[3] x) => (bfloat16[3] y, float[3] z)"
        "{ z = Cast <to = 1> (x) y = Cast <to = 16> (z) }",
    )
    spec = TensorSpec("x", BFLOAT16, (3,))
    result = run_model(path, [spec], RunOptions(outputs=tmp_path / "out.npz"))
    assert result.outputs is not None
    outputs = result.outputs.read_all()
    assert outputs["y"].dtype.name == "bfloat16"
    assert outputs["y"].astype(np.float32).tolist() == outputs["z"].tolist()
    assert outputs["z"].all()


def test_an_arena_as_large_as_the_peak_is_enough_and_a_byte_less_is_not(tmp_path: Path) -> None:
    body = "a = Exp(x) [second] b = Exp(a) y = Exp(b)"
    path = save(tmp_path, f"g (float[262144] x) => (float[262144] y) {{ {body} }}")
    specs = [TensorSpec("x", FLOAT, (262144,))]

    def run_within(limit_nbytes: int) -> RunResult:
        settings = Settings(threads=1, arena_limit_nbytes=limit_nbytes)
        return run_model(path, specs, RunOptions(settings, n_timed_runs=2))

    assert len(run_within(2 * 2**20).times_ns) == 2
    with pytest.raises(
        OutOfMemoryError,
        match="op 'second' asks for 1,048,576 B, more than the arena has together",
    ):
        run_within(2 * 2**20 - 1)


def test_a_run_above_its_memory_limit_is_an_error_with_a_hint(tmp_path: Path) -> None:
    body = "a = Exp(x) y = Exp(a)"
    path = save(tmp_path, f"g (float[40000000] x) => (float[40000000] y) {{ {body} }}")
    with pytest.raises(OutOfMemoryError) as caught:
        run(path, limits=Limits(memory_nbytes=100_000_000))
    assert caught.value.exit_code == 6
    assert caught.value.hint


def test_a_run_above_its_time_limit_is_an_error_with_a_hint(tmp_path: Path) -> None:
    path = save(tmp_path, SLOW)
    with pytest.raises(RunError, match=r"did not finish within 0\.6 s") as caught:
        run(path, limits=Limits(timeout_s=0.6), n=100)
    assert caught.value.hint


def test_what_onnxruntime_refuses_is_an_error_in_its_words(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"no protobuf")
    with pytest.raises(RunError, match=r"onnxruntime failed: .*INVALID_PROTOBUF"):
        run_model(path, [], RunOptions())


def test_a_missing_model_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not there"):
        run_model(tmp_path / "model.onnx", [], RunOptions())


def children_of(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


needs_proc = pytest.mark.skipif(
    not Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").exists(),
    reason="needs Linux's /proc to find the child",
)


@needs_proc
@pytest.mark.parametrize(
    ("number", "text"),
    [(signal.SIGKILL, "the system killed onnxruntime"), (signal.SIGSEGV, "died of SIGSEGV")],
)
def test_a_child_that_dies_is_an_error(number: int, text: str, tmp_path: Path) -> None:
    path = save(tmp_path, SLOW)
    before = children_of(os.getpid())

    def kill() -> None:
        (child,) = set(children_of(os.getpid())) - set(before)
        os.kill(child, number)

    timer = threading.Timer(0.8, kill)
    timer.start()
    with pytest.raises(RunError, match=text):
        run(path, n=1000, meter="none")
    timer.join()


@needs_proc
def test_interrupting_the_parent_ends_the_child(tmp_path: Path) -> None:
    path = save(tmp_path, SLOW)
    program = (
        "from pathlib import Path\n"
        "from checkmate.runtime.execute import *\n"
        f"run_model(Path({str(path)!r}), [TensorSpec('x', 1, (2048, 2048))],"
        " RunOptions(n_runs=1000))\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program],
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
    )
    time.sleep(1.2)
    (child,) = children_of(parent.pid)
    parent.send_signal(signal.SIGINT)
    parent.wait(timeout=10)
    assert not Path(f"/proc/{child}").exists()


def test_a_worker_goes_on_after_a_failure(tmp_path: Path) -> None:
    good = save(tmp_path, CONV_CHAIN)
    specs = specify_inputs(read_model(good, {}))

    def task(path: Path) -> RunTask:
        return RunTask(str(path), ONE_THREAD, "", specs, 0, "", 1, 0, 0, "none")

    with Worker() as worker:
        with pytest.raises(RunError):
            worker.ask(task(tmp_path / "missing.onnx"))
        assert len(worker.ask(task(good))["executed"]) == 4  # type: ignore[arg-type]
