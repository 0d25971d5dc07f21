"""Rewritten graphs under onnxruntime's default session options: order, copies, numbers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

from checkmate.liveness import insert_frees
from checkmate.onnxio.fence_maker import PREFIX
from checkmate.onnxio.model import Model
from checkmate.onnxio.order import HOISTED_OPS
from checkmate.onnxio.read import read_model
from checkmate.onnxio.windows import Fences
from checkmate.onnxio.write import render_model
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.inputs import make_inputs
from checkmate.schedule import Schedule
from onnx_models import TRAINING_MLP, save

MLP_ORDER = "h1 a1 h2 a2 y shape loss dy a2t dw3 w3t da2 m2 dh2 h1 a1 a1t dw2 w2t da1 m1 dh1 xt dw1"


def schedule_of(model: Model, made: str) -> Schedule:
    """Return the schedule that computes, in turn, what makes each tensor of ``made``."""
    producers = {tensor.name: tensor.producer for tensor in model.graph.tensors}
    ops = [producers[name] for name in made.split()]
    return insert_frees(model.graph, [op for op in ops if op is not None])


@dataclass(frozen=True)
class Run:
    """What a session did."""

    executed: tuple[str, ...]
    """First output of each node that ran, in order; without fences, Shape and Size."""
    outputs: tuple[bytes, ...]


def run(content: bytes, feeds: dict[str, np.ndarray], folder: Path, level: str = "ALL") -> Run:
    """Run with default session options, but for the ``level`` of optimization."""
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(
        ort.GraphOptimizationLevel, "ORT_DISABLE_ALL" if level == "NONE" else f"ORT_ENABLE_{level}"
    )
    options.log_severity_level = 3
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    optimized = folder / "optimized.onnx"
    options.optimized_model_filepath = str(optimized)
    session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    outputs = tuple(value.tobytes() for value in session.run(None, feeds))
    events = json.loads(Path(session.end_profiling()).read_text())
    made = {node.name: node.output[0] for node in onnx.load(optimized).graph.node}
    names = [
        str(event["name"]).removesuffix("_kernel_time")
        for event in events
        if event.get("cat") == "Node"
        and event["name"].endswith("_kernel_time")
        and event["args"]["op_name"] not in HOISTED_OPS
        and not event["name"].startswith(PREFIX)
    ]
    return Run(tuple(made.get(name, name) for name in names), outputs)


def rewrite(path: Path, order: str, fences: Fences, **dims: int) -> bytes:
    """Return the rewritten model of ``path``, which onnx's checker accepts."""
    model = read_model(path, dims)
    content = render_model(model, schedule_of(model, order), path.parent / "out.onnx", fences)
    onnx.checker.check_model(content, full_check=True)
    return content


def feeds_of(path: Path, **dims: int) -> dict[str, np.ndarray]:
    return make_inputs(specify_inputs(read_model(path, dims)), 0)


def named_copies(order: str, *, hoisted: str = "") -> list[str]:
    """Return the tensors of ``order`` as copies are called, without those of ``hoisted``."""
    names: list[str] = []
    seen: dict[str, int] = {}
    for name in order.split():
        number = seen.get(name, 0)
        seen[name] = number + 1
        names += [f"{name}__recompute{number}" if number else name]
    return [name for name in names if name not in hoisted.split()]


def test_recomputes_stay_behind_what_comes_before_them(tmp_path: Path) -> None:
    path = save(tmp_path, TRAINING_MLP)
    feeds = feeds_of(path, N=32)
    ran = run(rewrite(path, MLP_ORDER, "run", N=32), feeds, tmp_path)
    expected = named_copies(MLP_ORDER)
    start = expected.index("h1__recompute1")
    before = [name for name in ran.executed if name in expected[:start]]
    assert ran.executed[: len(before)] == tuple(before)
    assert ran.executed[len(before)] == "h1__recompute1"
    assert "a1__recompute1" in ran.executed
    assert ran.outputs == run(path.read_bytes(), feeds, tmp_path).outputs
