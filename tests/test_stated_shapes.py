"""Shapes are those of a run, whatever a file says, or does not say, of inner tensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from checkmate.onnxio.model import TensorType
from checkmate.onnxio.read import read_model
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.inputs import make_inputs
from onnx_models import GRAPHS, save_proto

IMAGE = "float[2, 4, 6, 6] x"
KINDS = {
    "Add": "(float[3, 1] x, float[4] b) => (y) { y = Add(x, b) }",
    "And": "(bool[3, 1] x, bool[4] b) => (y) { y = And(x, b) }",
    "BatchNormalization": f"({IMAGE}, float[4] s, float[4] b, float[4] m, float[4] v) => (y)"
    "{ y = BatchNormalization(x, s, b, m, v) }",
    "Cast": "(float[3, 4] x) => (y) { y = Cast <to = 11> (x) }",
    "Clip": "(float[3, 4] x, float m) => (y) { y = Clip(x, m) }",
    "Concat": "(float[3, 4] x, float[3, 2] b) => (y) { y = Concat <axis = -1> (x, b) }",
    "ConstantOfShape": "(float[3, 4] x) => (y) { s = Shape(x) y = ConstantOfShape(s) }",
    "Conv": f"({IMAGE}, float[8, 2, 3, 3] w) => (y)"
    "{ y = Conv <group = 2, strides = [2, 2], pads = [1, 1, 1, 1]> (x, w) }",
    "ConvTranspose": f"({IMAGE}, float[4, 3, 2, 2] w) => (y)"
    "{ y = ConvTranspose <strides = [2, 2]> (x, w) }",
    "CumSum": "(float[3, 4] x) => (y) <int64 a = {1}> { y = CumSum(x, a) }",
    "Div": "(int64[3, 4] x, int64[4] b) => (y) { y = Div(x, b) }",
    "Dropout": "(float[3, 4] x) => (y, m) <float r = {0.5}, bool t = {1}>"
    "{ y, m = Dropout(x, r, t) }",
    "Einsum": '(float[3, 4] x, float[4, 5] b) => (y){ y = Einsum <equation = "ij,jk->ki"> (x, b) }',
    "Equal": "(int64[3, 1] x, int64[4] b) => (y) { y = Equal(x, b) }",
    "Exp": "(float[3, 4] x) => (y) { y = Exp(x) }",
    "Expand": "(float[3, 1] x) => (y) <int64[3] s = {2, 1, 5}> { y = Expand(x, s) }",
    "Flatten": f"({IMAGE}) => (y) {{ y = Flatten <axis = 2> (x) }}",
    "Gather": "(float[5, 4] x, int64[2, 3] i) => (y) { y = Gather <axis = 1> (x, i) }",
    "GatherElements": "(float[5, 4] x, int64[5, 2] i) => (y)"
    "{ y = GatherElements <axis = 1> (x, i) }",
    "GatherND": "(float[5, 4] x, int64[2, 3, 1] i) => (y) { y = GatherND(x, i) }",
    "Gemm": "(float[4, 3] x, float[5, 4] b, float[5] c) => (y)"
    "{ y = Gemm <transA = 1, transB = 1> (x, b, c) }",
    "GlobalAveragePool": f"({IMAGE}) => (y) {{ y = GlobalAveragePool(x) }}",
    "Greater": "(float[3, 1] x, float[4] b) => (y) { y = Greater(x, b) }",
    "GreaterOrEqual": "(float[3, 1] x, float[4] b) => (y) { y = GreaterOrEqual(x, b) }",
    "GRU": "(float[5, 2, 3] x, float[1, 12, 3] w, float[1, 12, 4] r) => (y, h)"
    "{ y, h = GRU <hidden_size = 4> (x, w, r) }",
    "If": "(float[3, 4] x, bool c) => (y) { y = If (c) <then_branch = t () => (float[3, 4] p)"
    " { p = Exp(x) }, else_branch = e () => (float[3, 4] q) { q = Neg(x) }> }",
    "LayerNormalization": "(float[3, 4] x, float[4] s, float[4] b) => (y, m, v)"
    "{ y, m, v = LayerNormalization(x, s, b) }",
    "Less": "(float[3, 1] x, float[4] b) => (y) { y = Less(x, b) }",
    "LogSoftmax": "(float[3, 4] x) => (y) { y = LogSoftmax(x) }",
    "Loop": "(float[3, 4] x) => (y, z) <int64 n = {6}> { y, z = Loop (n, , x)"
    " <body = b (int64 i, bool c, float[3, 4] v) => (bool d, float[3, 4] u, float[3, 4] g)"
    " { d = Identity(c) u = Exp(v) g = Neg(v) }> }",
    "MatMul": "(float[2, 3, 4] x, float[4, 5] b) => (y) { y = MatMul(x, b) }",
    "MaxPool": f"({IMAGE}) => (y, i)"
    "{ y, i = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x) }",
    "Mul": "(float[3, 1] x, float[4] b) => (y) { y = Mul(x, b) }",
    "Neg": "(float[3, 4] x) => (y) { y = Neg(x) }",
    "Not": "(bool[3, 4] x) => (y) { y = Not(x) }",
    "OneHot": "(int64[3] x, float[2] v) => (y) <int64 d = {7}> { y = OneHot <axis = 0> (x, d, v) }",
    "Pad": "(float[3, 4] x) => (y) <int64[4] p = {1, 0, 2, 3}> { y = Pad(x, p) }",
    "Range": "(float[3, 4] x) => (y) <int64 a = {1}, int64 b = {9}, int64 c = {2}>"
    "{ y = Range(a, b, c) }",
    "Reciprocal": "(float[3, 4] x) => (y) { y = Reciprocal(x) }",
    "ReduceMean": "(float[3, 4] x) => (y) <int64[1] a = {1}> { y = ReduceMean(x, a) }",
    "ReduceProd": "(float[3, 4] x) => (y) { y = ReduceProd <keepdims = 0> (x) }",
    "ReduceSum": "(float[3, 4] x) => (y) <int64[1] a = {-1}>"
    "{ y = ReduceSum <keepdims = 0> (x, a) }",
    "ReduceSumSquare": "(float[3, 4] x) => (y) <int64[1] a = {0}> { y = ReduceSumSquare(x, a) }",
    "Relu": "(float[3, 4] x) => (y) { y = Relu(x) }",
    "Reshape": "(float[3, 4] x) => (y) <int64[3] s = {0, -1, 2}> { y = Reshape(x, s) }",
    "Resize": "(float[1, 1, 3, 4] x) => (y) <float[4] s = {1, 1, 2, 2}> { y = Resize(x, , s) }",
    "Scan": "(float[3, 4] x, float[4] s) => (y, z) { y, z = Scan <num_scan_inputs = 1, body = b"
    " (float[4] t, float[4] r) => (float[4] u, float[4] g) { u = Add(t, r) g = Exp(r) }> (s, x) }",
    "ScatterElements": "(float[5, 4] x, int64[2, 4] i, float[2, 4] u) => (y)"
    "{ y = ScatterElements(x, i, u) }",
    "ScatterND": "(float[5, 4] x, int64[3, 1] i, float[3, 4] u) => (y) { y = ScatterND(x, i, u) }",
    "Shape": "(float[3, 4] x) => (y) { y = Shape <start = 1> (x) }",
    "Size": "(float[3, 4] x) => (y) { y = Size(x) }",
    "Slice": "(float[9, 8] x) => (y) <int64[1] s = {-5}, int64[1] e = {-1}> { y = Slice(x, s, e) }",
    "Softmax": "(float[3, 4] x) => (y) { y = Softmax <axis = 0> (x) }",
    "SoftmaxCrossEntropyLoss": "(float[6, 4] x, int64[6] l) => (y, p)"
    "{ y, p = SoftmaxCrossEntropyLoss(x, l) }",
    "Split": "(float[3, 4] x) => (y, z) <int64[2] s = {1, 3}> { y, z = Split <axis = 1> (x, s) }",
    "Sqrt": "(float[3, 4] x) => (y) { y = Sqrt(x) }",
    "Squeeze": "(float[3, 1, 4] x) => (y) <int64[1] a = {1}> { y = Squeeze(x, a) }",
    "Sub": "(float[3, 1] x, float[4] b) => (y) { y = Sub(x, b) }",
    "Sum": "(float[3, 1] x, float[4] b, float c) => (y) { y = Sum(x, b, c) }",
    "Tanh": "(float[3, 4] x) => (y) { y = Tanh(x) }",
    "Tile": "(float[3, 4] x) => (y) <int64[2] r = {2, 3}> { y = Tile(x, r) }",
    "TopK": "(float[3, 8] x) => (y, i) <int64[1] k = {5}> { y, i = TopK(x, k) }",
    "Transpose": "(float[3, 4] x) => (y) { y = Transpose(x) }",
    "Trilu": "(float[4, 4] x) => (y) { y = Trilu(x) }",
    "Unsqueeze": "(float[3, 4] x) => (y) <int64[2] a = {0, -1}> { y = Unsqueeze(x, a) }",
    "Where": "(bool[3, 1] c, float[4] x, float b) => (y) { y = Where(c, x, b) }",
}


def parse(body: str) -> onnx.ModelProto:
    """Return a model that makes what ``body`` does, and hands on copies of it."""
    head, rest = body.split("=> (", maxsplit=1)
    names, nodes = rest.split(")", maxsplit=1)
    listed = ", ".join(f"float[1] {name.strip()}" for name in names.split(","))
    text = f'<ir_version: 8, opset_import: ["" : 18]> g {head} => ({listed}) {nodes}'
    proto = onnx.parser.parse_model(text)
    made = [item.name for item in proto.graph.output]
    del proto.graph.output[:]
    for name in made:
        proto.graph.node.append(onnx.helper.make_node("Identity", [name], [f"{name}_out"]))
        proto.graph.output.append(onnx.ValueInfoProto(name=f"{name}_out"))
    return proto


def state(proto: onnx.ModelProto, name: str, known: TensorType, how: str) -> None:
    """Say something out of date of an inner tensor."""
    shape: list[int | str] = [size + 1 for size in known.shape]
    if how == "other rank":
        shape.append(3)
    elif how == "unknown":
        shape = [f"unk__{axis}" for axis in range(len(shape))]
    info = onnx.helper.make_tensor_value_info(name, known.elem_type, shape)
    proto.graph.value_info.append(info)


def run(path: Path) -> dict[str, TensorType]:
    """Return the types of what a run of the model hands on."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(path, options, providers=providers)
    names = [item.name for item in session.get_outputs()]
    arrays = session.run(names, make_inputs(specify_inputs(read_model(path, {})), 0))
    types = (
        TensorType(onnx.helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype), array.shape)
        for array in arrays
    )
    return {name.removesuffix("_out"): known for name, known in zip(names, types, strict=True)}


@pytest.mark.parametrize("kind", KINDS)
def test_shapes_are_those_of_a_run_whatever_the_file_says(kind: str, tmp_path: Path) -> None:
    proto = parse(KINDS[kind])
    assert kind in {node.op_type for node in proto.graph.node}
    expected = run(save_proto(tmp_path, proto))
    for how in ("nothing", "other sizes", "other rank", "unknown"):
        del proto.graph.value_info[:]
        for name, known in expected.items():
            state(proto, name, known, how)
        del proto.graph.value_info[: len(expected) if how == "nothing" else 0]
        types = read_model(save_proto(tmp_path, proto), {}).types
        assert {name: types[name] for name in expected} == expected, how


def test_every_kind_of_op_of_the_shipped_graphs_is_tried() -> None:
    paths = sorted(GRAPHS.glob("*-tiny-bN.onnx"))
    nodes = (n for path in paths for n in onnx.load(path, load_external_data=False).graph.node)
    kinds = {node.op_type for node in nodes if node.op_type not in ("Constant", "Identity")}
    assert len(kinds) > 20
    assert kinds - KINDS.keys() == set()
