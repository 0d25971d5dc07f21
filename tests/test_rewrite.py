"""Schedules as ONNX models: run with onnxruntime and compared bit for bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

from checkmate.liveness import insert_frees
from checkmate.onnxio.model import Model, TensorType
from checkmate.onnxio.ranges import find_index_bounds
from checkmate.onnxio.read import read_model
from checkmate.onnxio.rewrite import rewrite_model
from checkmate.onnxio.write import render_model
from checkmate.schedule import Schedule
from onnx_models import TRAINING_MLP, save, save_proto


def schedule_of(model: Model, made: str) -> Schedule:
    """Return the schedule that computes, in turn, what makes each tensor of ``made``."""
    producers = {t.name: t.producer for t in model.graph.tensors}
    ops = [producers[name] for name in made.split()]
    return insert_frees(model.graph, [op for op in ops if op is not None])


def run(content: bytes, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


MLP_ORDER = "h1 a1 h2 a2 y shape loss dy a2t dw3 w3t da2 m2 dh2 h1 a1 a1t dw2 w2t da1 m1 dh1 xt dw1"


def test_copies_are_named_and_read_by_what_follows(tmp_path: Path) -> None:
    model = read_model(save(tmp_path, TRAINING_MLP), {"N": 4})
    rewritten = rewrite_model(model, schedule_of(model, MLP_ORDER)).graph
    by_output = {node.output[0]: node for node in rewritten.node}
    assert by_output["a1__recompute1"].input[0] == "h1__recompute1"
    assert by_output["a1t"].input[0] == "a1__recompute1"
    assert by_output["h2"].input[0] == "a1"
    assert by_output["h1__recompute1"].name.endswith("__recompute1")


def test_the_rewritten_model_is_valid_and_gives_equal_outputs(tmp_path: Path) -> None:
    path = save(tmp_path, TRAINING_MLP)
    model = read_model(path, {"N": 4})
    content = render_model(model, schedule_of(model, MLP_ORDER), tmp_path / "out.onnx")
    onnx.checker.check_model(content, full_check=True)
    rng = np.random.default_rng(0)
    feeds = {
        "x": rng.standard_normal((4, 64), dtype=np.float32),
        "w1": rng.standard_normal((64, 64), dtype=np.float32),
        "w2": rng.standard_normal((64, 64), dtype=np.float32),
        "w3": rng.standard_normal((64, 1), dtype=np.float32),
    }
    before, after = run(path.read_bytes(), feeds), run(content, feeds)
    assert [a.tobytes() for a in before] == [b.tobytes() for b in after]


def test_all_but_the_nodes_stays(tmp_path: Path) -> None:
    proto = onnx.load(save(tmp_path, TRAINING_MLP))
    proto.metadata_props.add(key="author", value="someone")
    model = read_model(save_proto(tmp_path, proto), {"N": 4})
    rewritten = rewrite_model(model, schedule_of(model, MLP_ORDER))
    del rewritten.graph.node[:]
    del proto.graph.node[:]
    assert rewritten == proto


def test_a_graph_output_is_what_its_last_compute_makes(tmp_path: Path) -> None:
    path = save(tmp_path, "g (float[4] x) => (float[4] a, float[4] y) { a = Relu(x) y = Exp(a) }")
    model = read_model(path, {})
    content = render_model(model, schedule_of(model, "a y a"), tmp_path / "out.onnx")
    onnx.checker.check_model(content, full_check=True)
    nodes = onnx.load_from_string(content).graph.node
    assert [(n.input[0], n.output[0]) for n in nodes] == [
        ("x", "a__early1"), ("a__early1", "y"), ("x", "a"),
    ]  # fmt: skip
    feeds = {"x": np.arange(4, dtype=np.float32)}
    assert np.array_equal(run(content, feeds), run(path.read_bytes(), feeds))


def test_names_that_are_taken_are_avoided(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        """g (float[4] x) => (float[4] y) {
            a = Relu(x)
            a__recompute1 = Exp(a)
            y = Add(a, a__recompute1)
        }""",
    )
    model = read_model(path, {})
    rewritten = rewrite_model(model, schedule_of(model, "a a__recompute1 a y")).graph
    assert rewritten.node[2].output[0] == "a__recompute1_"
    assert list(rewritten.node[3].input) == ["a__recompute1_", "a__recompute1"]


def test_bodies_of_control_flow_read_the_copies_too(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        """g (bool c, float[4] x) => (float[4] y) {
            a = Relu(x)
            b = Exp(a)
            y = If (c) <
                then_branch = t () => (float[4] p) { p = Add(a, b) },
                else_branch = e () => (float[4] q) { q = Mul(a, b) }
            >
        }""",
    )
    model = read_model(path, {})
    content = render_model(model, schedule_of(model, "a b a y"), tmp_path / "out.onnx")
    branch = onnx.load_from_string(content).graph.node[3].attribute[0].g
    assert list(branch.node[0].input) == ["a__recompute1", "b"]
    for choice in (True, False):
        feeds = {"c": np.array(choice), "x": np.arange(4, dtype=np.float32)}
        assert np.array_equal(run(content, feeds), run(path.read_bytes(), feeds))


def test_what_nobody_reads_gets_a_reader_so_that_it_is_freed(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        """g (float[2, 64] x) => (float[2] y) <int64[1] axis = {1}> {
            a = Relu(x)
            left, right = Split <axis = 1, num_outputs = 2> (a)
            y = ReduceSum <keepdims = 0> (left, axis)
        }""",
    )
    model = read_model(path, {})
    rewritten = rewrite_model(model, schedule_of(model, "a left y")).graph
    assert [(n.op_type, n.input[0]) for n in rewritten.node] == [
        ("Relu", "x"), ("Split", "a"), ("Size", "right"), ("ReduceSum", "left"),
    ]  # fmt: skip


def test_constant_nodes_come_first(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        """g (float[2] x) => (float[2] y) {
            a = Relu(x)
            c = Constant <value = float[2] {1.0, 1.0}> ()
            y = Add(a, c)
        }""",
    )
    model = read_model(path, {})
    rewritten = rewrite_model(model, schedule_of(model, "a y")).graph
    assert [node.op_type for node in rewritten.node] == ["Constant", "Relu", "Add"]


def test_index_inputs_are_in_range_of_what_they_point_into(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        """g (float[9, 4] table, int64[3] ids, int64[3] labels, int64[3] other)
             => (float[3, 4] y, float[3, 1] picked, int64[3] z) <int64[1] last = {-1}> {
            y = Gather(table, ids)
            column = Unsqueeze(labels, last)
            picked = GatherElements <axis = 1> (y, column)
            z = Add(other, other)
        }""",
    )
    assert find_index_bounds(read_model(path, {})) == {"ids": 9, "labels": 4}


def test_indices_into_a_scalar_have_no_bound(tmp_path: Path) -> None:
    # onnx infers a shape for it; onnxruntime refuses to load it.
    path = save(tmp_path, "g (float[3] x, int64 at) => (y) { n = ReduceSum(x) y = Gather(n, at) }")
    model = read_model(path, {})
    scalar = replace(model, types={**model.types, "n": TensorType(1, ())})
    assert find_index_bounds(scalar) == {}
