"""The steps of the GPU check that a CPU can go through, and its word where there is no GPU."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from checkmate.onnxio.read import read_model
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.device import Device
from checkmate.runtime.execute import RunOptions, run_model
from checkmate.runtime.inputs import make_inputs
from checkmate.runtime.protocol import Settings
from onnx_models import save

ROOT = Path(__file__).parent.parent
HAS_DRIVER = Path("/proc/driver/nvidia/version").exists()
DEVICE = Device("cpu", "a processor", 2**34, "1.31.1")


@pytest.fixture
def numbers(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    return importlib.import_module("gpu_numbers")


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
    form: str, kernel: int, numbers: ModuleType, tmp_path: Path
) -> None:
    path = save(tmp_path, getattr(numbers, form)(3, 5, kernel))
    specs = specify_inputs(read_model(path, {}))
    options = RunOptions(Settings(threads=1), outputs=tmp_path / "outputs.npz")
    outputs = run_model(path, specs, options).outputs
    assert outputs is not None
    given = make_inputs(specs, 0)
    expected = differentiate(given["x"].astype(float), given["dy"].astype(float), kernel)
    assert outputs.read("dw") == pytest.approx(expected, abs=1e-4)


def test_dropouts_with_one_seed_draw_one_mask_on_the_cpu(
    numbers: ModuleType, tmp_path: Path
) -> None:
    figures = numbers.try_seeded_dropout(DEVICE, tmp_path)
    assert figures["copies_with_one_seed_equal"] is True
    assert figures["without_seed_equal"] is False
    assert figures["dropped_share"] == pytest.approx(0.5, abs=0.01)


@pytest.mark.skipif(HAS_DRIVER, reason="needs a machine without an NVIDIA driver")
def test_without_a_gpu_the_check_says_so_and_is_no_failure() -> None:
    command = [sys.executable, str(ROOT / "bench" / "gpu_check.py")]
    environment = {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("no GPU check here: the CUDA provider is not usable: ")
