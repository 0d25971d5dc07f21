"""The steps of the GPU check on the CPU, and its word where there is no GPU."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from builders import op, problem
from checkmate.cli.main import program
from checkmate.onnxio.read import read_model
from checkmate.profiler.kernels import Unplaced
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.arrays import SavedArrays, save_arrays
from checkmate.runtime.device import Device, probe_device
from checkmate.runtime.execute import RunOptions, RunResult, run_model
from checkmate.runtime.inputs import make_inputs
from checkmate.runtime.protocol import Settings
from onnx_models import save

ROOT = Path(__file__).parent.parent
HAS_DRIVER = Path("/proc/driver/nvidia/version").exists()
DEVICE = Device("cpu", "a processor", 2**34, "1.31.1")
N_LAYERS = 6


def write_training(folder: Path) -> Path:
    """Return a file that trains a chain of layers, whose activations are all that is large."""
    # The optimizer leaves out the Identity, so that costs are not those of the file as it is.
    steps = ["same = Identity (x)", "h0 = Sin (same)"]
    steps += [f"h{i} = Sin (h{i - 1})" for i in range(1, N_LAYERS)]
    steps += [f"loss = ReduceSum <keepdims = 0> (h{N_LAYERS - 1})", f"g{N_LAYERS} = Cos (same)"]
    for i in reversed(range(N_LAYERS)):
        steps += [f"c{i} = Cos (h{i})", f"g{i} = Mul (g{i + 1}, c{i})"]
    lines = "\n".join(steps)
    return save(
        folder, f"chain (float[N, 4096] x) => (float loss, float[N, 4096] g0) {{ {lines} }}"
    )


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what imports a file of `bench`, of which no type is known here."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    return importlib.import_module


@pytest.fixture(scope="module")
def costs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("costs")
    model, path = write_training(folder), folder / "costs.json"
    profiled = ["profile", str(model), "--dim", "N=16", "--provider", "cpu", "-o", str(path)]
    assert CliRunner().invoke(program, profiled).exit_code == 0
    return path


@pytest.fixture
def prepared(bench: Any, costs: Path, tmp_path: Path) -> Any:
    steps = bench("gpu_steps")
    return steps.prepare(costs.parent / "model.onnx", {"N": 16}, costs, DEVICE, tmp_path)


def make_result(path: Path, output: np.ndarray, varying: tuple[str, ...]) -> RunResult:
    save_arrays(path, {"y": output})
    return RunResult((), (), 0, 0, (), "none", varying, (), SavedArrays(path))


def list_verdicts(findings: Any) -> dict[str, str]:
    return {check.what: check.verdict for check in findings.checks}


def differentiate(x: np.ndarray, dy: np.ndarray, kernel: int) -> np.ndarray:
    """Return the weight gradient of a convolution that keeps the size, by its definition."""
    pad, size = kernel // 2, x.shape[2]
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    gradient = np.zeros((dy.shape[1], x.shape[1], kernel, kernel))
    for i in range(kernel):
        for j in range(kernel):
            shifted = padded[:, :, i : i + size, j : j + size]
            gradient[:, :, i, j] = np.einsum("nkhw,nchw->kc", dy, shifted)
    return gradient


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("form", ["make_conv_form", "make_matmul_form"])
def test_both_forms_are_the_weight_gradient_of_a_convolution(
    form: str, kernel: int, bench: Any, tmp_path: Path
) -> None:
    numbers = bench("gpu_numbers")
    path = save(tmp_path, getattr(numbers, form)(numbers.Layer(3, 5, kernel)))
    specs = specify_inputs(read_model(path, {}))
    options = RunOptions(Settings(threads=1), outputs=tmp_path / "outputs.npz")
    outputs = run_model(path, specs, options).outputs
    assert outputs is not None
    given = make_inputs(specs, 0)
    expected = differentiate(given["x"].astype(float), given["dy"].astype(float), kernel)
    assert outputs.read("dw") == pytest.approx(expected, abs=1e-4)


def test_a_form_that_is_refused_does_not_hide_the_other(bench: Any, tmp_path: Path) -> None:
    numbers = bench("gpu_numbers")
    # A kernel without positions: nothing to put together.
    layers = (numbers.Layer(3, 5, 0, 2), numbers.Layer(3, 5, 1, 2))
    found = numbers.compare_weight_gradients(DEVICE, tmp_path, layers)
    refused, whole = found.figures.values()
    assert "Concat" in refused["matmul"]["error"]
    assert refused["conv"]["time_ns"] > 0
    assert min(whole["conv"]["time_ns"], whole["matmul"]["time_ns"]) > 0


def test_dropouts_with_one_seed_draw_one_mask_on_the_cpu(bench: Any, tmp_path: Path) -> None:
    found = bench("gpu_numbers").try_seeded_dropout(DEVICE, tmp_path)
    assert found.figures["without_seed_equal"] is False
    assert set(list_verdicts(found).values()) == {"pass"}


def test_sessions_place_ops_on_the_cpu(bench: Any, tmp_path: Path) -> None:
    found = bench("gpu_numbers").try_placing(DEVICE, tmp_path)
    assert found.figures == {"Relu": True, "Det": True, "Unique": True}


def test_the_graph_is_prepared_as_it_was_profiled(prepared: Any) -> None:
    assert prepared.model.is_optimized
    assert prepared.problem.costs.origin.provider == "cpu"
    assert prepared.plan.peak.nbytes <= prepared.plan.budget_nbytes


def test_the_plan_for_the_arena_runs_in_it_and_the_original_does_not(
    bench: Any, prepared: Any
) -> None:
    arenas = bench("gpu_arenas")
    made = arenas.prepare_arena(prepared)
    assert set(list_verdicts(arenas.try_arenas(made)).values()) == {"pass"}
    found = arenas.find_smallest_arenas(made, ("region", "requests"))
    assert found.checks[0].verdict == "pass"
    assert found.checks[1].verdict == "reported"
    smallest_nbytes = found.figures["smallest_requests_nbytes"]
    with arenas.Tries(prepared, "requests") as tries:
        assert tries.try_limit(made.rewritten, smallest_nbytes) is None
        assert tries.try_limit(made.rewritten, smallest_nbytes * 97 // 100) is not None


def test_where_no_plan_is_found_the_smallest_budget_is_taken(bench: Any) -> None:
    # Three quarters of 8 bytes are less than the second op needs.
    given = problem(op("a", nbytes=4), op("b", "a", nbytes=4), outputs="b")
    plan = bench("gpu_steps").find_plan(given)
    assert (plan.budget_nbytes, plan.peak.nbytes) == (8, 8)


def test_fences_and_priorities_keep_order_peak_and_outputs(bench: Any, prepared: Any) -> None:
    found = bench("gpu_fences").try_fences(prepared)
    verdicts = list_verdicts(found)
    assert len(found.figures) == 1 + 6
    assert "fail" not in verdicts.values()
    assert verdicts["outputs that differ, fences all, by priority"] == "pass"
    assert verdicts["ops out of order, fences all, default options"] == "pass"


@pytest.mark.parametrize(
    ("manner", "varying", "verdict"),
    [
        ("scheduled", (), "fail"),
        ("scheduled", ("y",), "pass"),
        ("default-no-pattern", (), "pass"),
    ],
)
def test_outputs_that_differ_fail_unless_fusions_or_the_op_itself_round_them(
    manner: str, varying: tuple[str, ...], verdict: str, bench: Any, tmp_path: Path
) -> None:
    fences = bench("gpu_fences")
    one, ulp = np.ones(4, np.float32), np.nextafter(np.ones(4, np.float32), np.float32(2))
    results = [make_result(tmp_path / f"{a[0]}.npz", a, varying) for a in (one, ulp)]
    assert fences._judge_outputs(fences._Case("all", manner), *results).verdict == verdict


def test_ops_that_ran_on_the_cpu_unnamed_are_judged_by_what_they_make(
    bench: Any, prepared: Any
) -> None:
    judge = bench("gpu_steps").judge_fallback
    name = prepared.model.graph.ops[0].name
    assert [check.verdict for check in judge(prepared.model, (), (name,))] == ["reported", "fail"]
    named = (Unplaced("Sin", (name,), None),)
    assert judge(prepared.model, named, (name,))[1].verdict == "pass"


def test_commands_and_steps_pass_on_the_cpu(bench: Any, tmp_path: Path) -> None:
    check, numbers, reports = (bench(f"gpu_{name}") for name in ("check", "numbers", "report"))
    files = tmp_path / "costs.json", tmp_path / "optimized.onnx"
    trial = check.Trial("chain", write_training(tmp_path), {"N": 16}, *files)
    report = reports.Report(120, 60)
    layers = (numbers.Layer(3, 5, 3, 2),)
    check.Steps(probe_device("cpu"), report, (trial,), layers).run()
    assert report.skipped == []
    assert [row for row in report.rows if not row["passed"]] == []
    once, graph = "device placing dropout weights", "profile solve check plan kernels fences arenas"
    expected = f"{once} {graph} solve smallest".split()
    assert [row["step"].split()[0] for row in report.rows] == expected
    notes = {row["step"]: row.get("notes", []) for row in report.rows}
    assert any("whole graph" in line for line in notes["profile"])
    json.dumps(report.rows)


@pytest.mark.skipif(HAS_DRIVER, reason="needs a machine without an NVIDIA driver")
def test_without_a_gpu_the_check_says_so_and_is_no_failure() -> None:
    command = [sys.executable, str(ROOT / "bench" / "gpu_check.py")]
    environment = {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("no GPU check here: the CUDA provider is not usable: ")
