"""Steps of `bench/gpu_check.py` about what kernels compute: gradients of weights, and dropout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from checkmate.onnxio.read import read_model
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.device import Device
from checkmate.runtime.execute import RunOptions, RunResult, run_model
from checkmate.runtime.protocol import Settings

Figures = dict[str, object]
LAYERS = ((64, 56, 3), (256, 14, 3), (512, 7, 3), (256, 28, 1))
"""Channels, height and width, and kernel of the convolutions."""
CONV_BATCH = 32


def compare_weight_gradients(device: Device, folder: Path) -> Figures:
    """Return the times of both forms of a convolution's weight gradient, and how they differ.

    "conv" swaps the axes of batch and channels of input and gradient and convolves them; "matmul"
    multiplies the gradient with the input, shifted to each position of the kernel.
    """
    figures: Figures = {}
    for channels, size, kernel in LAYERS:
        row: Figures = {}
        outputs: list[np.ndarray] = []
        forms = {"conv": make_conv_form, "matmul": make_matmul_form}
        for form, make in forms.items():
            path = folder / f"{form}.onnx"
            path.write_bytes(_parse(make(channels, size, kernel)))
            result = _run(path, device, folder / f"{form}.npz")
            assert result.outputs is not None
            outputs.append(result.outputs.read("dw").astype(float))
            row |= {f"{form}_ns": result.time_ns, f"{form}_peak_nbytes": result.peak_nbytes}
        scale = float(np.abs(outputs[0]).max())
        row["difference"] = float(np.abs(outputs[0] - outputs[1]).max()) / scale
        figures[f"{channels} x {size} x {size}, kernel {kernel}"] = row
    return figures


def make_conv_form(channels: int, size: int, kernel: int) -> str:
    """Return the weight gradient of a convolution with equal channels as a convolution."""
    image, pad = f"float[{CONV_BATCH}, {channels}, {size}, {size}]", kernel // 2
    return f"""
    g ({image} x, {image} dy) => (float[{channels}, {channels}, {kernel}, {kernel}] dw) {{
        xt = Transpose <perm = [1, 0, 2, 3]> (x)
        dyt = Transpose <perm = [1, 0, 2, 3]> (dy)
        dwt = Conv <pads = [{pad}, {pad}, {pad}, {pad}]> (xt, dyt)
        dw = Transpose <perm = [1, 0, 2, 3]> (dwt)
    }}
    """


def make_matmul_form(channels: int, size: int, kernel: int) -> str:
    """Return the same gradient as a product for each position of the kernel."""
    image, pad, area = f"float[{CONV_BATCH}, {channels}, {size}, {size}]", kernel // 2, size * size
    steps, made = [], []
    for y in range(kernel):
        for x in range(kernel):
            k = f"{y}_{x}"
            made.append(f"u{k}")
            steps.append(f"""
        b{k} = Constant <value_ints = [{y}, {x}]> ()
        e{k} = Constant <value_ints = [{y + size}, {x + size}]> ()
        s{k} = Slice (padded, b{k}, e{k}, axes)
        r{k} = Reshape (s{k}, flat)
        t{k} = Transpose <perm = [0, 2, 1]> (r{k})
        m{k} = MatMul (dyr, t{k})
        u{k} = ReduceSum <keepdims = 0> (m{k}, batch)""")
    return f"""
    g ({image} x, {image} dy) => (float[{channels}, {channels}, {kernel}, {kernel}] dw) {{
        pads = Constant <value_ints = [0, 0, {pad}, {pad}, 0, 0, {pad}, {pad}]> ()
        axes = Constant <value_ints = [2, 3]> ()
        flat = Constant <value_ints = [{CONV_BATCH}, {channels}, {area}]> ()
        batch = Constant <value_ints = [0]> ()
        shape = Constant <value_ints = [{channels}, {channels}, {kernel}, {kernel}]> ()
        last = Constant <value_ints = [2]> ()
        padded = Pad (x, pads)
        dyr = Reshape (dy, flat)
        {"".join(steps)}
        {" ".join(f"v{name} = Unsqueeze ({name}, last)" for name in made)}
        all = Concat <axis = 2> ({", ".join(f"v{name}" for name in made)})
        dw = Reshape (all, shape)
    }}
    """


def try_seeded_dropout(device: Device, folder: Path) -> Figures:
    """Return whether two Dropouts with one seed draw the same mask, one without a seed between."""
    path = folder / "dropout.onnx"
    path.write_bytes(
        _parse("""
    g (float[512, 512] x) => (float[512, 512] y, float[512, 512] z, float[512, 512] w)
      <float half = {0.5}, bool yes = {1}> {
        y = Dropout <seed = 7> (x, half, yes)
        w = Dropout (x, half, yes)
        z = Dropout <seed = 7> (x, half, yes)
    }
    """)
    )
    result = _run(path, device, folder / "dropout.npz")
    assert result.outputs is not None
    first, copy, other = (result.outputs.read(name) for name in ("y", "z", "w"))
    return {
        "copies_with_one_seed_equal": first.tobytes() == copy.tobytes(),
        "without_seed_equal": first.tobytes() == other.tobytes(),
        "dropped_share": float((first == 0).mean()),
    }


def _run(path: Path, device: Device, outputs: Path) -> RunResult:
    specs = specify_inputs(read_model(path, {}))
    settings = Settings(device.provider)
    options = RunOptions(
        settings, n_runs=3, n_timed_runs=10, max_timed_ns=2_000_000_000, outputs=outputs
    )
    return run_model(path, specs, options)


def _parse(body: str) -> bytes:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]>\n{body}')
    content: bytes = model.SerializeToString()
    return content
