"""What misleads or ends profiles: tiny ops, cold starts, ops larger than the memory."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from checkmate.cli.main import program
from checkmate.errors import OutOfMemoryError, RunError
from checkmate.onnxio.read import read_model
from checkmate.profiler.measure import Effort, measure_op
from checkmate.profiler.profile import ProfileOptions, measure_whole_graph_ns, profile_model
from checkmate.profiler.surroundings import survey
from checkmate.runtime.device import Device
from checkmate.runtime.protocol import Settings, TensorSpec, TimeTask
from checkmate.runtime.worker import Limits, Worker
from onnx_models import TRAINING_MLP, save

DEVICE = Device("cpu", "a processor", 2**34, "1.31.1")
HUGE = "g (float[4194304, 524288] v) => (float[4194304, 524288] z) { [huge] z = Exp(v) }"


def make_tiny(n_ops: int) -> str:
    names = ["x", *(f"h{i}" for i in range(1, n_ops)), "y"]
    kinds = ("Tanh", "Sigmoid", "Neg", "Abs")
    pairs = enumerate(itertools.pairwise(names))
    steps = [f"{out} = {kinds[i % 4]} ({in_})" for i, (in_, out) in pairs]
    return f"tiny (float[64] x) => (float[64] y) {{ {' '.join(steps)} }}"


def profile(*arguments: str | Path) -> tuple[dict[str, object], str]:
    """Return the document and the notes of a profile; raise what it raises."""
    result = CliRunner().invoke(program, ["profile", *map(str, arguments), "--json"])
    if result.exception is not None:
        raise result.exception
    return json.loads(result.stdout), result.stderr


def test_tiny_ops_do_not_cost_what_a_run_costs_by_itself(tmp_path: Path) -> None:
    model = read_model(save(tmp_path, make_tiny(200)), {})
    options = ProfileOptions(threads=1)
    total_ns = profile_model(model, DEVICE, options, lambda _: None).costs.total_ns
    whole_ns = measure_whole_graph_ns(model, DEVICE, options)
    # With what a run costs by itself, 200 of these take 3.5 times as long.
    assert total_ns < 2 * whole_ns


def test_a_cold_run_is_no_cost_of_an_op(tmp_path: Path) -> None:
    image = "float[8, 32, 32, 32]"
    body = f"g ({image} x, float[32, 32, 3, 3] w) => (float[8, 32, 30, 30] y) {{ y = Conv(x, w) }}"
    specs = (TensorSpec("x", 1, (8, 32, 32, 32)), TensorSpec("w", 1, (32, 32, 3, 3)))
    made = (TensorSpec("y", 1, (8, 32, 30, 30)),)
    settings, path = Settings(threads=1), save(tmp_path, body)
    task = TimeTask(str(path), settings, specs, made, 0, 5, 10**9, workspace_by="allocator")
    with Worker() as worker:
        reply = worker.ask(task)
    times_ns, cold_ns = reply["times_ns"], reply["cold_ns"]
    assert isinstance(times_ns, list)
    assert isinstance(cold_ns, int)
    assert len(times_ns) == 5
    assert cold_ns > min(times_ns)


def test_the_sum_of_op_costs_is_compared_with_the_whole_run(tmp_path: Path) -> None:
    path, costs = save(tmp_path, TRAINING_MLP), tmp_path / "costs.json"
    options = ("--dim", "N=64", "--provider", "cpu", "-o", costs)
    document, notes = profile(path, *options)
    assert isinstance(document["whole_ns"], int)
    assert document["whole_ns"] > 0
    assert "sum of op costs is " in notes
    document, notes = profile(path, *options, "--no-whole")
    assert "whole_ns" not in document
    assert "whole graph: not run" in notes


def test_a_graph_larger_than_the_memory_is_not_run_as_a_whole(tmp_path: Path) -> None:
    body = (
        "g (float[64] x, float[4194304, 524288] v) => (float[64] y, float[4194304, 524288] z)"
        " { y = Exp(x) [huge] z = Exp(v) }"
    )
    costs = ("-o", tmp_path / "costs.json", "--provider", "cpu")
    document, notes = profile(save(tmp_path, body), *costs)
    assert document["estimated"] == ["huge"]
    assert "whole_ns" not in document
    assert "whole graph: not run, as it needs " in notes


def test_an_op_larger_than_the_device_alone_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"op 'huge' \(Exp\) take 16\.00 TiB") as caught:
        profile(save(tmp_path, HUGE), "-o", tmp_path / "costs.json", "--provider", "cpu")
    assert caught.value.exit_code == 6
    assert "smaller batch size" in str(caught.value.hint)
    assert not (tmp_path / "costs.json").exists()


def test_an_op_that_runs_out_of_memory_is_named_and_the_next_one_is_measured(
    tmp_path: Path,
) -> None:
    body = """
    g (float[8, 8] x) => (float[8, 8] y, float[8192, 8192] z) {
        shape = Constant <value_ints = [8192, 8192]> ()
        one = Constant <value_floats = [1.0]> ()
        [large] z = Expand(one, shape)
        y = Tanh(x)
    }
    """
    model = read_model(save(tmp_path, body), {})
    large, small = (node for node in model.nodes if node.op_type in ("Expand", "Tanh"))
    # The tensors fit in what the caller believes to be free, not in what the process may have.
    effort = Effort(Settings(threads=1), memory_nbytes=2**31, max_runs=1, max_ns=0)
    with Worker(Limits(memory_nbytes=2**27)) as worker:
        with pytest.raises(OutOfMemoryError, match=r"op 'large' \(Expand\)"):
            measure_op(large, survey(model), worker, effort)
        assert measure_op(small, survey(model), worker, effort).time_ns >= 0


def test_an_op_whose_inputs_this_machine_does_not_hold_is_not_drawn_for_a_device_that_would(
    tmp_path: Path,
) -> None:
    model = read_model(save(tmp_path, HUGE), {})
    device = Device("cuda", "a large device", 2**60, "1.31.1")
    with pytest.raises(RunError, match=r"no op could be measured: the tensors of op 'huge' \(Exp"):
        profile_model(model, device, ProfileOptions(), lambda _: None)
