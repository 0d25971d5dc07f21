"""Runs under onnxruntime's default session options, and rewritten models for them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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

LEVELS = ("DISABLE_ALL", "ENABLE_BASIC", "ENABLE_ALL")


@dataclass(frozen=True)
class Run:
    """What a session did."""

    executed: tuple[str, ...]
    """First output of each node that ran, in order; without fences, Shape, Size and subgraphs."""
    outputs: tuple[bytes, ...]


def run(
    content: bytes, feeds: Mapping[str, np.ndarray], folder: Path, level: str = "ENABLE_ALL"
) -> Run:
    """Run with default session options, but for the ``level`` of optimization."""
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, f"ORT_{level}")
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
    return Run(tuple(made[name] for name in names if name in made), outputs)


def count_ops(model: Path | bytes, level: str, folder: Path) -> Counter[str]:
    """Return how many nodes of each kind a session runs."""
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, f"ORT_{level}")
    options.log_severity_level = 3
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    given: Any = model if isinstance(model, bytes) else str(model)
    ort.InferenceSession(given, options, providers=["CPUExecutionProvider"])
    return Counter(node.op_type for node in onnx.load(folder / "optimized.onnx").graph.node)


def schedule_of(model: Model, made: str) -> Schedule:
    """Return the schedule that computes, in turn, what makes each tensor of ``made``."""
    producers = {tensor.name: tensor.producer for tensor in model.graph.tensors}
    ops = [producers[name] for name in made.split()]
    return insert_frees(model.graph, [op for op in ops if op is not None])


def rewrite(path: Path, order: str, fences: Fences, **dims: int) -> bytes:
    """Return the rewritten model of ``path``, which onnx's checker accepts."""
    model = read_model(path, dims)
    content = render_model(model, schedule_of(model, order), path.parent / "out.onnx", fences)
    onnx.checker.check_model(content, full_check=True)
    return content


def feeds_of(path: Path, **dims: int) -> dict[str, np.ndarray]:
    """Return random inputs of the model in ``path``."""
    return make_inputs(specify_inputs(read_model(path, dims)), 0)


def name_copies(order: str, *, without: str = "") -> tuple[str, ...]:
    """Return the tensors of ``order`` as they are called in the rewritten model."""
    names: list[str] = []
    for position, name in enumerate(order.split()):
        number = order.split()[:position].count(name)
        names.append(f"{name}__recompute{number}" if number else name)
    return tuple(name for name in names if name not in without.split())
