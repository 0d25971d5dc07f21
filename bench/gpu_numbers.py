"""Steps of `bench/gpu_check.py` about what kernels compute, and where there are none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from checkmate.errors import CheckmateError
from checkmate.onnxio.read import read_model
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.device import Device
from checkmate.runtime.execute import RunOptions, RunResult, run_model
from checkmate.runtime.protocol import PlaceTask, Provider, Settings
from checkmate.runtime.worker import Worker
from gpu_report import Check, Figures, Findings, judge

MOST_DIFFERENCE = {"cpu": 1e-4, "cuda": 1e-2}
"""Between both forms, as a share of the largest element; CUDA multiplies in TF32, of 10 bits."""
_ON_CPU_ONLY = ("Det", "Unique")
"""Ops that onnxruntime has no CUDA kernel for."""
_ONE_OPS = {
    "Relu": "g (float[4] x) => (float[4] y) { y = Relu (x) }",
    "Det": "g (float[4, 4] x) => (float y) { y = Det (x) }",
    "Unique": "g (float[8] x) => (float[n] y) { y = Unique (x) }",
}


@dataclass(frozen=True, slots=True)
class Layer:
    """A convolution that keeps channels, height and width."""

    channels: int
    size: int
    """Height and width."""
    kernel: int
    batch: int = 32

    def __str__(self) -> str:
        image = f"{self.batch} x {self.channels} x {self.size} x {self.size}"
        return f"{image}, kernel {self.kernel}"


LAYERS = (Layer(64, 56, 3), Layer(512, 7, 3), Layer(256, 28, 1))
SMALL_LAYERS = (Layer(16, 14, 3, 8), Layer(32, 14, 1, 8))


def compare_weight_gradients(
    device: Device, folder: Path, layers: tuple[Layer, ...] = LAYERS
) -> Findings:
    """Return the times of both forms of a convolution's weight gradient, and how they differ.

    "conv" swaps the axes of batch and channels of input and gradient and convolves them; "matmul"
    multiplies the gradient with the input, shifted to each position of the kernel. A form that is
    refused has its error in place of figures; one at least has to run.
    """
    figures: Figures = {}
    checks: list[Check] = []
    for layer in layers:
        row, outputs = _run_forms(layer, device, folder)
        n_run = f"{len(outputs)} of 2"
        checks.append(
            judge(f"forms that run, {layer}", n_run, "1 of 2 or more", holds=bool(outputs))
        )
        if len(outputs) == 2:
            checks.append(_judge_difference(layer, outputs, MOST_DIFFERENCE[device.provider]))
        figures[str(layer)] = row
    return Findings(figures, tuple(checks))


def _run_forms(layer: Layer, device: Device, folder: Path) -> tuple[Figures, list[np.ndarray]]:
    """Return what each form took, or its error, and the gradients of those that ran."""
    row: Figures = {}
    outputs: list[np.ndarray] = []
    for form, make in (("conv", make_conv_form), ("matmul", make_matmul_form)):
        path = folder / f"{form}.onnx"
        path.write_bytes(_parse(make(layer)))
        try:
            result = _run(path, device, folder / f"{form}.npz")
        except CheckmateError as error:
            row[form] = {"error": error.message}
            continue
        assert result.outputs is not None
        outputs.append(result.outputs.read("dw").astype(float))
        row[form] = {"time_ns": result.time_ns, "peak_nbytes": result.peak_nbytes}
    return row, outputs


def _judge_difference(layer: Layer, outputs: list[np.ndarray], most: float) -> Check:
    scale = float(np.abs(outputs[0]).max())
    difference = float(np.abs(outputs[0] - outputs[1]).max()) / scale
    what = f"difference of both forms, {layer}"
    return judge(what, difference, f"at most {most:g}", holds=difference <= most)


def make_conv_form(layer: Layer) -> str:
    """Return the weight gradient of a convolution with equal channels as a convolution."""
    channels, kernel, pad = layer.channels, layer.kernel, layer.kernel // 2
    image = f"float[{layer.batch}, {channels}, {layer.size}, {layer.size}]"
    return f"""
    g ({image} x, {image} dy) => (float[{channels}, {channels}, {kernel}, {kernel}] dw) {{
        xt = Transpose <perm = [1, 0, 2, 3]> (x)
        dyt = Transpose <perm = [1, 0, 2, 3]> (dy)
        dwt = Conv <pads = [{pad}, {pad}, {pad}, {pad}]> (xt, dyt)
        dw = Transpose <perm = [1, 0, 2, 3]> (dwt)
    }}
    """


def make_matmul_form(layer: Layer) -> str:
    """Return the same gradient as a product for each position of the kernel."""
    channels, size, kernel, pad = layer.channels, layer.size, layer.kernel, layer.kernel // 2
    image, area = f"float[{layer.batch}, {channels}, {size}, {size}]", size * size
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
        flat = Constant <value_ints = [{layer.batch}, {channels}, {area}]> ()
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


def try_seeded_dropout(device: Device, folder: Path) -> Findings:
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
    outputs = result.outputs
    figures: Figures = {
        "n_elements": outputs.read("y").size,
        "without_seed_equal": outputs.read("y").tobytes() == outputs.read("w").tobytes(),
    }
    return Findings(figures, tuple(judge_dropouts(outputs.read("y"), outputs.read("z"))))


def judge_dropouts(first: np.ndarray, copy: np.ndarray) -> Iterator[Check]:
    """Yield whether ``copy`` has the bits of ``first``, of which half must have been dropped."""
    n_unequal = int((first != copy).sum())
    is_equal = first.tobytes() == copy.tobytes()
    yield judge("elements of the copy that differ", n_unequal, "0, bit for bit", holds=is_equal)
    share = float((first == 0).mean())
    yield judge("share that is dropped", share, "0.45 to 0.55", holds=0.45 <= share <= 0.55)


def try_placing(device: Device, folder: Path) -> Findings:
    """Return whether sessions that may not fall back to the CPU are refused where they would.

    `session.disable_cpu_ep_fallback` is what tells whether CUDA works, and which ops it has
    kernels for. On the CPU nothing is refused.
    """
    figures: Figures = {}
    with Worker() as worker:
        for op_type, graph in _ONE_OPS.items():
            figures[op_type] = _is_placed(worker, graph, folder, device.provider)
    refused = [op_type for op_type in _ON_CPU_ONLY if not figures[op_type]]
    is_cuda = device.provider == "cuda"
    named = ", ".join(refused) or "none"
    what = "ops refused without a kernel"
    return Findings(
        figures,
        (
            judge("Relu is placed", figures["Relu"], "true", holds=figures["Relu"] is True),
            judge(what, named, "one at least", holds=bool(refused), is_judged=is_cuda),
        ),
    )


def _is_placed(worker: Worker, graph: str, folder: Path, provider: Provider) -> bool:
    path = folder / "placed.onnx"
    path.write_bytes(_parse(graph))
    return bool(worker.ask(PlaceTask(str(path), Settings(provider)))["is_placed"])


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
