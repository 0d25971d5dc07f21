"""Ops without a kernel, named before anything is measured."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from checkmate.cli.measuring import describe_unplaced
from checkmate.onnxio.read import read_model
from checkmate.profiler.kernels import Unplaced, find_unplaced
from onnx_models import TRAINING_MLP, save, save_proto

HAS_DRIVER = Path("/proc/driver/nvidia/version").exists()

HALVES = """
halves (bfloat16[4, 4] x, bfloat16[4, 4] w, float[4, 4] v)
  => (bfloat16[4, 4] y, bfloat16[4, 4] z, float[4, 4] u) {
    y = MatMul(x, w)
    z = MatMul(w, x)
    u = MatMul(v, v)
}
"""


def test_all_ops_of_a_training_graph_have_kernels_on_the_cpu(tmp_path: Path) -> None:
    model = read_model(save(tmp_path, TRAINING_MLP), {"N": 8})
    assert find_unplaced(model, "cpu") == ()


def test_ops_that_onnxruntime_refuses_are_named_by_kind_with_its_words(tmp_path: Path) -> None:
    model = read_model(save(tmp_path, HALVES), {})
    (unplaced,) = find_unplaced(model, "cpu")
    assert unplaced.op_type == "MatMul"
    assert unplaced.ops == ("MatMul_0", "MatMul_1")
    assert unplaced.reason is not None
    assert "NOT_IMPLEMENTED" in unplaced.reason


@pytest.mark.skipif(HAS_DRIVER, reason="needs a machine without an NVIDIA driver")
def test_without_a_device_every_op_runs_on_the_cpu(tmp_path: Path) -> None:
    model = read_model(save(tmp_path, "g (float[4] x) => (float[4] y) { y = Relu(x) }"), {})
    assert find_unplaced(model, "cuda") == (Unplaced("Relu", ("Relu_0",), None),)


def test_one_session_answers_for_all_shapes_of_an_operator_and_each_attribute_is_asked(
    tmp_path: Path,
) -> None:
    body = """
    g (bfloat16[4, 4] x, bfloat16[2, 2] s) => (bfloat16[4] a, bfloat16[2] b, bfloat16[4, 1] c) {
        a = ReduceL1 <keepdims = 0, axes = [1]> (x)
        b = ReduceL1 <keepdims = 0, axes = [1]> (s)
        c = ReduceL1 <keepdims = 1, axes = [1]> (x)
    }
    """
    model = read_model(save(tmp_path, body, opset=13), {})
    assert [kind.ops for kind in find_unplaced(model, "cpu")] == [
        ("ReduceL1_0", "ReduceL1_1"),
        ("ReduceL1_2",),
    ]


def test_an_op_with_a_subgraph_is_left_out(tmp_path: Path) -> None:
    branch = onnx.parser.parse_graph("b () => (float[1] t) <float[1] t = {1.0}> {}")
    node = onnx.helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph([node], "g", [info("c", 9, [])], [info("y", 1, [1])])
    opset = onnx.helper.make_opsetid("", 18)
    path = save_proto(tmp_path, onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8))
    assert find_unplaced(read_model(path, {}), "cpu") == ()


def test_a_note_counts_the_ops_that_run_elsewhere_and_quotes_each_refusal() -> None:
    lines = describe_unplaced(
        [
            Unplaced("MaxUnpool", ("u1", "u2"), None),
            Unplaced("BatchNormalization", ("bn1", "bn2", "bn3"), "not with training_mode"),
            Unplaced("MaxUnpool", ("u3",), None),
            Unplaced("Mish", ("m1",), None),
        ]
    )
    fallen, refused = lines
    assert "no CUDA kernel for 4 ops (3 MaxUnpool, 1 Mish; the first is 'u1')" in fallen
    assert "refuses 3 BatchNormalization ops on CUDA" in refused
    assert "'bn1': not with training_mode" in refused


def test_nothing_is_said_when_all_ops_have_kernels() -> None:
    assert list(describe_unplaced([])) == []
