"""CUDA that is there and does not work: seen before anything relies on it, with what to do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from checkmate.cli.drift import check_drift
from checkmate.errors import DeviceError, OutOfMemoryError, RunError
from checkmate.onnxio.read import read_model
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.device import probe_device
from checkmate.runtime.execute import RunOptions, run_model
from checkmate.runtime.optimize import optimize_model
from checkmate.runtime.probe_model import PROBE_MODEL, PROBE_SHAPE
from checkmate.runtime.probing import find_problem
from checkmate.runtime.protocol import Settings, TensorSpec
from checkmate.runtime.worker import shorten_failure
from fake_cuda import NAME, NBYTES, OLD_DRIVER, fake_in_children
from onnx_models import save

HAS_DRIVER = Path("/proc/driver/nvidia/version").exists()


def test_the_probe_runs_kernels_of_onnxruntime_of_cudnn_and_of_cublas() -> None:
    model = onnx.load_from_string(PROBE_MODEL)
    onnx.checker.check_model(model, full_check=True)
    assert [node.op_type for node in model.graph.node] == ["Relu", "Conv", "MatMul"]
    session = onnxruntime.InferenceSession(PROBE_MODEL, providers=["CPUExecutionProvider"])
    (made,) = session.run(None, {"x": np.full(PROBE_SHAPE, 3, np.float32)})
    assert made.shape == PROBE_SHAPE
    assert made.item() == 81


@pytest.mark.skipif(HAS_DRIVER, reason="needs a machine without an NVIDIA driver")
def test_without_cuda_there_is_a_problem() -> None:
    assert find_problem() is not None


def test_a_device_on_which_the_probe_runs_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_in_children(tmp_path, monkeypatch)
    device = probe_device("auto")
    assert (device.provider, device.name, device.nbytes) == ("cuda", NAME, NBYTES)


def test_a_driver_older_than_cuda_leaves_the_cpu_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_in_children(tmp_path, monkeypatch, init_error=OLD_DRIVER)
    device = probe_device("auto")
    assert device.provider == "cpu"
    assert device.notice == (
        "no usable CUDA device (CUDA failure 35: CUDA driver version is insufficient for CUDA"
        " runtime version); using the CPU"
    )
    with pytest.raises(DeviceError, match="not usable: CUDA failure 35: CUDA driver") as caught:
        probe_device("cuda")
    assert "CUDA 13.0, which takes an NVIDIA driver of version 580" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("failure", "hint"),
    [
        ("cuDNN is not available. Install cuDNN.", "pip install 'checkmate-remat[cuda]'"),
        (
            "CUDA failure 209: no kernel image is available for execution on the device",
            "has no code for this device",
        ),
    ],
)
def test_what_only_a_run_finds_out_is_found(
    failure: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_in_children(tmp_path, monkeypatch, run_error=f"Status Message: {failure}")
    assert probe_device("auto").provider == "cpu"
    with pytest.raises(DeviceError) as caught:
        probe_device("cuda")
    assert caught.value.message == f"the CUDA provider is not usable: {failure}"
    assert hint in str(caught.value.hint)


@pytest.mark.skipif(HAS_DRIVER, reason="needs a machine without an NVIDIA driver")
def test_a_run_on_cuda_is_not_one_on_the_cpu(tmp_path: Path) -> None:
    path = save(tmp_path, "g (float[4] x) => (float[4] y) { y = Relu(x) }")
    model = read_model(path, {})
    with pytest.raises(RunError, match="CUDA was asked for, and onnxruntime made a session with"):
        run_model(path, specify_inputs(model), RunOptions(Settings("cuda")))
    with pytest.raises(RunError, match="CUDA was asked for, and onnxruntime made a session with"):
        optimize_model(model, "basic", "cuda")


def test_a_run_on_cuda_fails_with_what_the_provider_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_in_children(tmp_path, monkeypatch, init_error=OLD_DRIVER)
    path = save(tmp_path, "g (float[4] x) => (float[4] y) { y = Relu(x) }")
    with pytest.raises(RunError, match="onnxruntime failed: CUDA failure 35: CUDA driver version"):
        run_model(path, [TensorSpec("x", 1, (4,))], RunOptions(Settings("cuda")))


@pytest.mark.parametrize(
    "failure",
    [
        "CUDA failure 2: out of memory ; GPU=0",
        "CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED ; GPU=0",
        "CUBLAS failure 3: the resource allocation failed ; GPU=0",
        "CUDNN failure 4: CUDNN_STATUS_ALLOC_FAILED ; GPU=0",
    ],
)
def test_a_library_of_cuda_that_gets_no_memory_is_out_of_memory(
    failure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_in_children(tmp_path, monkeypatch, run_error=f"Non-zero status code. {failure}")
    path = save(tmp_path, "g (float[4] x) => (float[4] y) { y = Relu(x) }")
    with pytest.raises(OutOfMemoryError, match="out of memory"):
        run_model(path, [TensorSpec("x", 1, (4,))], RunOptions())


def test_only_the_drift_of_an_optimized_graph_is_measured_in_full_single_precision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_in_children(tmp_path, monkeypatch, init_error="asked for {options}")
    path = save(tmp_path, "g (float[4, 4] x) => (float[4, 4] y) { y = MatMul(x, x) }")
    model = replace(read_model(path, {}), is_optimized=True)
    with pytest.raises(RunError, match=r"asked for .*'use_tf32': '0'"):
        check_drift(model, "cuda")
    with pytest.raises(RunError, match="asked for") as caught:
        run_model(path, specify_inputs(model), RunOptions(Settings("cuda")))
    assert "tf32" not in caught.value.message


def test_a_failure_is_told_without_where_in_the_source_it_was_said() -> None:
    assert shorten_failure("\nfile.cc:3 void f() CUBLAS failure 3: no memory ; GPU=0\nmore") == (
        "CUBLAS failure 3: no memory"
    )
    assert shorten_failure("Name:'c' Status Message: no cuDNN") == "no cuDNN"
    assert shorten_failure("first\nsecond") == "first"
    assert shorten_failure("\n") == "no message"
