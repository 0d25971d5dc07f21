"""Operator sets and file versions, old and new; element types and their sizes."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from checkmate.errors import InputError
from checkmate.onnxio.read import read_model
from onnx_models import TRAINING_MLP, save, save_proto

OPSETS = range(11, onnx.defs.onnx_opset_version() + 1)

MIXED = """
g (float[N, 3, 8, 8] x, float[4, 3, 3, 3] w, float[4] b, float[4, 10] v)
  => (float[A, 10] y, float[A, 4, 3, 3] p) {
    c = Conv <kernel_shape = [3, 3]> (x, w, b)
    r = Relu(c)
    p, i = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)
    m = GlobalAveragePool(p)
    f = Flatten(m)
    t = Transpose <perm = [0, 1]> (f)
    z = MatMul(t, v)
    s = Softmax <axis = 1> (z)
    shape = Shape(s)
    ones = ConstantOfShape <value = float[1] {1.0}> (shape)
    y = Mul(s, ones)
}"""


@pytest.mark.parametrize("opset", OPSETS)
def test_a_graph_has_the_same_sizes_under_every_operator_set(tmp_path: Path, opset: int) -> None:
    model = read_model(save(tmp_path, MIXED, opset=opset), {"N": 2})
    sizes = {tensor.name: tensor.nbytes for tensor in model.graph.tensors}
    assert sizes["c"] == 2 * 4 * 6 * 6 * 4
    assert sizes["p"] == 2 * 4 * 3 * 3 * 4
    assert sizes["i"] == 2 * sizes["p"]
    assert sizes["ones"] == sizes["y"] == 2 * 10 * 4


@pytest.mark.parametrize("opset", [11, 12])
def test_axes_of_old_reductions_are_attributes(tmp_path: Path, opset: int) -> None:
    body = """g (float[2, 3] x) => (float[3] y, float[1, 2, 3] u) {
        y = ReduceSum <axes = [0], keepdims = 0> (x)
        u = Unsqueeze <axes = [0]> (x)
    }"""
    types = read_model(save(tmp_path, body, opset=opset), {}).types
    assert (types["y"].shape, types["u"].shape) == ((3,), (1, 2, 3))


def test_onnxruntime_normalizes_layers_before_the_standard_does(tmp_path: Path) -> None:
    body = """g (float[2, 3] x, float[3] s) => (float[A, B] y, float[A, C] m) {
        y, m = LayerNormalization <axis = -1> (x, s)
    }"""
    types = read_model(save(tmp_path, body, opset=14), {}).types
    assert (types["y"].shape, types["m"].shape) == ((2, 3), (2, 1))


@pytest.mark.parametrize("ir_version", range(3, onnx.IR_VERSION + 1))
def test_files_of_every_version_are_read(tmp_path: Path, ir_version: int) -> None:
    proto = onnx.load(save(tmp_path, TRAINING_MLP))
    proto.ir_version = ir_version
    assert len(read_model(save_proto(tmp_path, proto), {"N": 2}).graph.ops) == 22


@pytest.mark.parametrize(
    ("elem_type", "nbytes"),
    [
        ("FLOAT16", 10), ("BFLOAT16", 10), ("FLOAT", 20), ("DOUBLE", 40), ("BOOL", 5), ("INT8", 5),
        ("UINT16", 10), ("INT32", 20), ("INT64", 40), ("COMPLEX64", 40), ("COMPLEX128", 80),
        ("FLOAT8E4M3FN", 5), ("FLOAT8E5M2", 5), ("FLOAT8E8M0", 5), ("INT4", 3), ("UINT4", 3),
        ("FLOAT4E2M1", 3), ("INT2", 2), ("UINT2", 2),
    ],
)  # fmt: skip
def test_five_elements_take_these_bytes(tmp_path: Path, elem_type: str, nbytes: int) -> None:
    proto = onnx.load(save(tmp_path, "g (float[5] x) => (float[5] y) { y = Identity(x) }"))
    code = onnx.TensorProto.DataType.Value(elem_type)
    proto.graph.input[0].type.tensor_type.elem_type = code
    proto.graph.output[0].type.tensor_type.elem_type = code
    proto.opset_import[0].version = onnx.defs.onnx_opset_version()
    tensors = read_model(save_proto(tmp_path, proto), {}).graph.tensors
    assert {tensor.name: tensor.nbytes for tensor in tensors} == {"x": nbytes, "y": nbytes}


@pytest.mark.parametrize("kind", ["seq(float[2])", "optional(float[2])"])
def test_inputs_that_are_no_tensors_are_refused_by_name(tmp_path: Path, kind: str) -> None:
    name = "sequence" if kind.startswith("seq") else "optional"
    path = save(tmp_path, f"g ({kind} parts) => ({kind} y) {{ y = Identity(parts) }}")
    with pytest.raises(InputError, match=f"input 'parts' is not a tensor but a {name}"):
        read_model(path, {})
