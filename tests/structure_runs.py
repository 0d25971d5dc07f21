"""A model as it is and rewritten with recomputes, run and compared bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from checkmate.graph import OpId
from checkmate.liveness import insert_frees
from checkmate.onnxio.model import Model
from checkmate.onnxio.read import read_model
from checkmate.onnxio.rewrite import rewrite_model
from checkmate.onnxio.windows import FENCES, Fences


def run(proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    known = {item.name for item in session.get_inputs()}
    return list(session.run(None, {name: feed for name, feed in feeds.items() if name in known}))


def draw(proto: onnx.ModelProto, dims: dict[str, int]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    feeds = {}
    for item in proto.graph.input:
        tensor = item.type.tensor_type
        shape = [dims.get(d.dim_param, d.dim_value) for d in tensor.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        feeds[item.name] = np.asarray(rng.random(shape) * 2).astype(dtype)
    return feeds


def recompute_all(model: Model, fences: Fences) -> onnx.ModelProto:
    """Return the model that runs every op, and then again every op that may."""
    ops = [OpId(i) for i in range(len(model.graph.ops))]
    again = [op for op in ops if model.graph.ops[op].recomputable]
    return rewrite_model(model, insert_frees(model.graph, ops + again), fences)


def assert_equal_runs(path: Path, dims: dict[str, int]) -> Model:
    model = read_model(path, dims)
    proto = onnx.load(path)
    feeds = draw(proto, dims)
    expected = run(proto, feeds)
    for fences in FENCES:
        made = run(recompute_all(model, fences), feeds)
        for one, other in zip(expected, made, strict=True):
            np.testing.assert_array_equal(one, other)
    return model
