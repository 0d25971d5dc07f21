"""Every structure that a graph file may have: read, rewritten with recomputes, run, compared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from checkmate.onnxio.functions import KERNELLESS_OPS
from checkmate.onnxio.read import read_model
from onnx_models import save, save_proto
from structure_runs import assert_equal_runs, draw, recompute_all, run

STRUCTURES = {
    "an input that is an output": (
        "g (float[4] x) => (float[4] x, float[4] y) { y = Relu(x) }"
    ),
    "an initializer that is an output": (
        "g (float[2] x) => (float[2] w, float[2] y) <float[2] w = {1, 2}> { y = Mul(x, w) }"
    ),
    "a constant that is an output": (
        "g (float[2] x) => (float[1] c, float[2] y) "
        "{ c = Constant <value = float[1] {3}> () y = Mul(x, c) }"
    ),
    "unused outputs": (
        """g (float[2, 6] x) => (float[2, 3] y) {
            a, b = Split <axis = 1, num_outputs = 2> (x)
            m, i = TopK(x, k)
            y = Exp(a)
        }""".replace("=> (float[2, 3] y) {", "=> (float[2, 3] y) <int64[1] k = {2}> {")
    ),
    "an optional output that is left out": (
        """g (float[2, 4] x, float[4] s) => (float[2, 4] y) {
            a, "", v = LayerNormalization(x, s)
            y = Mul(a, v)
        }"""
    ),
    "an optional input that is left out": (
        """g (float[2, 4] x, float m) => (float[2, 4] y) { y = Clip(x, "", m) }"""
    ),
    "an output that is also read": (
        "g (float[4] x) => (float[4] a, float[4] y) { a = Exp(x) y = Mul(a, a) }"
    ),
    "an output that is a view": (
        """g (float[2, 3] x) => (float[6] v, float[2, 3] y) <int64[1] s = {6}> {
            a = Exp(x) v = Reshape(a, s) y = Sqrt(a)
        }"""
    ),
    "one tensor read twice": "g (float[4] x) => (float[4] y) { a = Exp(x) y = Add(a, a) }",
    "unsorted nodes": "g (float[4] x) => (float[4] y) { y = Mul(b, a) b = Exp(a) a = Sqrt(x) }",
    "a loop with a count": """
        g (float[3, 4] x, float[4] s) => (float[4] y, float[3, 4] all) <int64 n = {3}> {
            y, all = Loop (n, "", s) <body = b (int64 i, bool c, float[4] t)
              => (bool d, float[4] u, float[4] v) {
                r = Gather <axis = 0> (x, i)
                u = Add(t, r)
                v = Exp(u)
                d = Identity(c)
            }>
        }""",
    "a loop that ends by its condition": """
        g (float[4] s, bool go) => (float[4] y) <int64 n = {9}> {
            y = Loop (n, go, s) <body = b (int64 i, bool c, float[4] t) => (bool d, float[4] u) {
                u = Sqrt(t)
                m = ReduceMax <keepdims = 0> (u)
                one = Constant <value = float {1.1}> ()
                d = Greater(m, one)
            }>
        }""",
    "a scan": """
        g (float[4] s, float[3, 4] x) => (float[4] y, float[3, 4] all) {
            e = Exp(s)
            y, all = Scan <num_scan_inputs = 1, body = b (float[4] t, float[4] r)
              => (float[4] u, float[4] v) { u = Add(t, r) v = Exp(u) }> (e, x)
        }""",
    "a scan along another axis": """
        g (float[4] s, float[4, 3] x) => (float[4] y, float[4, 3] all) {
            y, all = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [-1],
              body = b (float[4] t, float[4] r)
              => (float[4] u, float[4] v) { u = Add(t, r) v = Exp(u) }> (s, x)
        }""",
    "branches that capture": """
        g (bool c, float[4] x) => (float[4] y) {
            a = Exp(x)
            y = If (c) <
                then_branch = t () => (float[4] p) { q = Exp(a) p = Mul(q, x) },
                else_branch = e () => (float[4] p) { p = Identity(a) }
            >
        }""",
    "control flow within control flow": """
        g (bool c, float[3, 4] x, float[4] s) => (float[4] y) <int64 n = {3}> {
            y = Loop (n, "", s) <body = b (int64 i, bool k, float[4] t) => (bool d, float[4] u) {
                r = Gather <axis = 0> (x, i)
                u = If (c) <
                    then_branch = th () => (float[4] p) { p = Add(t, r) },
                    else_branch = el () => (float[4] q) { q = Sub(t, r) }
                >
                d = Identity(k)
            }>
        }""",
    "an operator that has no kernel": """
        g (float[4, 5] x, int64[4] t) => (float loss, float[4, 5] y) {
            a = Mish(x)
            y = HardSwish(a)
            loss, p = SoftmaxCrossEntropyLoss(y, t)
        }""",
    "a sequence that is put together": """
        g (float[2, 3] x, float[2, 5] z) => (float[2, 8] y, int64 n, float[2, 5] last)
          <int64 minus = {-1}> {
            a = Exp(x)
            s = SequenceConstruct(a, z)
            y = ConcatFromSequence <axis = 1> (s)
            n = SequenceLength(s)
            e = SequenceAt(s, minus)
            last = Sqrt(e)
        }""",
    "a sequence that grows and shrinks": """
        g (float[3] x, float[3] z) => (float[2, 3] y) <int64 i0 = {0}> {
            s0 = SequenceEmpty()
            s1 = SequenceInsert(s0, x)
            s2 = SequenceInsert(s1, z, i0)
            a = Exp(z)
            s3 = SequenceInsert(s2, a)
            s4 = SequenceErase(s3, i0)
            y = ConcatFromSequence <axis = 0, new_axis = 1> (s4)
        }""",
    "a tensor that is split into a sequence": """
        g (float[2, 6] x) => (float[2, 4] y) <int64[2] lengths = {2, 4}, int64 i1 = {1}> {
            s = SplitToSequence <axis = 1> (x, lengths)
            a = SequenceAt(s, i1)
            y = Exp(a)
        }""",
    "an optional that is there": """
        g (float[3] x) => (float[3] y, bool b) {
            a = Exp(x)
            o = Optional(a)
            b = OptionalHasElement(o)
            e = OptionalGetElement(o)
            y = Sqrt(e)
        }""",
    "a group normalization": """
        g (float[2, 4, 3] x, float[2] s, float[2] b) => (float[2, 4, 3] y) {
            y = GroupNormalization <num_groups = 2> (x, s, b)
        }""",
}  # fmt: skip


@pytest.mark.parametrize("body", STRUCTURES.values(), ids=STRUCTURES.keys())
def test_a_structure_is_read_and_its_rewriting_runs(tmp_path: Path, body: str) -> None:
    assert_equal_runs(save(tmp_path, body), {})


def test_initializers_that_are_also_inputs_are_resident_once(tmp_path: Path) -> None:
    proto = onnx.load(
        save(tmp_path, "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Mul(x, w) }")
    )
    proto.ir_version = 3
    proto.graph.input.append(onnx.helper.make_tensor_value_info("w", 1, [2]))
    model = assert_equal_runs(save_proto(tmp_path, proto), {})
    assert [t.name for t in model.graph.tensors if t.producer is None] == ["x", "w"]


def test_a_sparse_initializer_is_as_large_as_a_dense_one(tmp_path: Path) -> None:
    proto = onnx.load(
        save(tmp_path, "g (float[4, 4] x, float[4, 4] w) => (float[4, 4] y) { y = MatMul(x, w) }")
    )
    del proto.graph.input[1]
    values = onnx.numpy_helper.from_array(np.array([1, 2], "f4"), "w")
    indices = onnx.numpy_helper.from_array(np.array([3, 9]), "i")
    sparse = onnx.helper.make_sparse_tensor(values, indices, [4, 4])
    proto.graph.sparse_initializer.append(sparse)
    model = assert_equal_runs(save_proto(tmp_path, proto), {})
    assert next(t.nbytes for t in model.graph.tensors if t.name == "w") == 64


def test_one_output_that_is_listed_twice_is_counted_once(tmp_path: Path) -> None:
    proto = onnx.load(save(tmp_path, "g (float[4] x) => (float[4] y) { y = Exp(x) }"))
    proto.graph.output.append(proto.graph.output[0])
    assert len(read_model(save_proto(tmp_path, proto), {}).graph.outputs) == 1


def test_empty_names_and_equal_names_of_nodes_become_names_of_their_own(tmp_path: Path) -> None:
    path = save(tmp_path, "g (float[4] x) => (float[4] y) { a = Exp(x) b = Sqrt(a) y = Abs(b) }")
    proto = onnx.load(path)
    unnamed = onnx.load(path)
    for node, name in zip(proto.graph.node, ("same", "", "same"), strict=True):
        node.name = name
    model = read_model(save_proto(tmp_path, proto), {})
    assert [op.name for op in model.graph.ops] == ["same_0", "Sqrt_1", "same_2"]
    # onnxruntime itself refuses the file.
    feeds = draw(proto, {})
    np.testing.assert_array_equal(
        run(recompute_all(model, "run"), feeds)[0], run(unnamed, feeds)[0]
    )


def test_functions_run_as_their_bodies(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 18, "local" : 1]>
        g (float[4] x) => (float[4] y) { a = local.twice(x) y = local.twice(a) }
        <opset_import: ["" : 18, "local" : 1], domain: "local">
        twice (a) => (b) { c = local.once(a) b = Exp(c) }
        <opset_import: ["" : 18], domain: "local"> once (a) => (b) { b = Sqrt(a) }"""
    path = save_proto(tmp_path, onnx.parser.parse_model(text))
    assert len(assert_equal_runs(path, {}).graph.ops) == 4


def test_operators_that_onnxruntime_would_inline_are_planned_as_their_bodies(
    tmp_path: Path,
) -> None:
    model = read_model(save(tmp_path, STRUCTURES["an operator that has no kernel"]), {})
    kinds = {node.op_type for node in model.nodes}
    assert {"Softplus", "Tanh", "HardSigmoid", "LogSoftmax", "GatherElements"} <= kinds
    assert kinds.isdisjoint(KERNELLESS_OPS)
