"""Rules for what onnx does not know, against onnxruntime itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from checkmate.errors import InputError
from checkmate.onnxio.model import TensorType
from checkmate.onnxio.read import read_model
from onnx_models import save_proto

F, I32, I64, U8 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64, TensorProto.UINT8
Shape = tuple[int, ...]
Inputs = Mapping[str, tuple[Shape, int]]
MS = "com.microsoft"


def model_of(node: onnx.NodeProto, inputs: Inputs, *, opset: int = 17) -> onnx.ModelProto:
    """Return a model of one op, whose outputs have no type in the file."""
    given = [helper.make_tensor_value_info(n, t, s) for n, (s, t) in inputs.items()]
    made = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([node], "one", given, made)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def read_types(folder: Path, model: onnx.ModelProto) -> dict[str, TensorType]:
    types = read_model(save_proto(folder, model), {}).types
    return {out.name: types[out.name] for out in model.graph.output}


def run_types(model: onnx.ModelProto) -> dict[str, TensorType]:
    """Return the types of what onnxruntime makes."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    content = model.SerializeToString()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    feeds = {}
    for item in model.graph.input:
        tensor = item.type.tensor_type
        shape = [d.dim_value for d in tensor.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        # Indices of one are in range everywhere below.
        feeds[item.name] = np.ones(shape, dtype=dtype)
    made = session.run(None, feeds)
    return {
        out.name: TensorType(helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for out, array in zip(session.get_outputs(), made, strict=True)
    }


def call(
    op_type: str, reads: str, makes: str = "y", domain: str = MS, **attributes: object
) -> onnx.NodeProto:
    """Return a node; ``_`` stands for an input or output that is left out."""
    names = [[name.strip("_") for name in names.split()] for names in (reads, makes)]
    return helper.make_node(op_type, names[0], names[1], domain=domain, **attributes)


X34 = {"x": ((3, 4), F)}
X234 = {"x": ((2, 3, 4), F)}
CONV: Inputs = {"x": ((2, 4, 9, 8), F), "w": ((6, 4, 3, 3), F), "b": ((6,), F)}
NORM: Inputs = {"x": ((2, 3, 4), F), "s": ((4,), F), "b": ((4,), F)}
SKIP: Inputs = NORM | {"k": ((2, 3, 4), F)}
EMBED: Inputs = {
    "i": ((2, 3), I32), "g": ((2, 3), I32), "w": ((5, 8), F), "p": ((4, 8), F),
    "t": ((2, 8), F), "s": ((8,), F), "b": ((8,), F),
}  # fmt: skip
HEADS: Inputs = {"q": ((2, 3, 8), F), "k": ((2, 5, 8), F), "v": ((2, 5, 12), F)}

RUNNABLE: tuple[tuple[onnx.NodeProto, Inputs], ...] = (
    (call("FusedMatMul", "x w"), {"x": ((2, 3, 4), F), "w": ((4, 5), F)}),
    (call("FusedMatMul", "x w", transA=1), {"x": ((2, 4, 3), F), "w": ((2, 4, 5), F)}),
    (call("FusedMatMul", "x w", transB=1), {"x": ((7, 1, 3, 4), F), "w": ((2, 5, 4), F)}),
    (
        call("FusedMatMul", "x w", transBatchA=1, transBatchB=1),
        {"x": ((3, 2, 4), F), "w": ((4, 2, 5), F)},
    ),
    (
        call("FusedMatMul", "x w", transBatchA=1, transA=1),
        {"x": ((4, 2, 3), F), "w": ((2, 4, 5), F)},
    ),
    (call("TransposeMatMul", "x w", transB=1), {"x": ((3, 4), F), "w": ((5, 4), F)}),
    (call("FusedGemm", "x w b", transB=1, activation="Relu"),
     {"x": ((3, 4), F), "w": ((5, 4), F), "b": ((5,), F)}),
    (call("FusedConv", "x w b", activation="Relu", pads=[1, 1, 0, 0], strides=[2, 1]), CONV),
    (call("FusedConv", "x w b z", activation="Relu", kernel_shape=[3, 3], auto_pad="SAME_UPPER"),
     CONV | {"z": ((2, 6, 9, 8), F)}),
    (call("Gelu", "x"), X34),
    (call("QuickGelu", "x", alpha=1.7), X34),
    (call("FastGelu", "x b"), X34 | {"b": ((4,), F)}),
    (call("BiasGelu", "x b"), X34 | {"b": ((4,), F)}),
    (call("Inverse", "x"), {"x": ((2, 1, 1), F)}),
    (call("CDist", "x w"), {"x": ((3, 4), F), "w": ((5, 4), F)}),
    (call("LayerNormalization", "x s b", "y", ""), NORM),
    (call("SimplifiedLayerNormalization", "x s", "y i", "", axis=-1),
     {"x": ((2, 3, 4), F), "s": ((4,), F)}),
    (call("SkipLayerNormalization", "x k s b", "y"), SKIP),
    (call("SkipLayerNormalization", "x k s b", "y _ _ t"), SKIP),
    (call("SkipSimplifiedLayerNormalization", "x k s", "y _ _ t"),
     {name: SKIP[name] for name in "xks"}),
    (call("EmbedLayerNormalization", "i g w p t s b", "y m"), EMBED),
    (call("EmbedLayerNormalization", "i g w p t s b", "y m e"), EMBED),
    (call("Attention", "x w b", num_heads=2),
     {"x": ((2, 3, 8), F), "w": ((8, 24), F), "b": ((24,), F)}),
    (call("MultiHeadAttention", "q k v", num_heads=2), HEADS),
    (call("MultiHeadAttention", "q k v", "y pk pv", num_heads=2), HEADS),
    (call("MatMulIntegerToFloat", "x w sx sw"),
     {"x": ((3, 4), U8), "w": ((4, 5), U8), "sx": ((), F), "sw": ((), F)}),
    (call("DynamicQuantizeMatMul", "x w sw"), {"x": ((3, 4), F), "w": ((4, 5), U8), "sw": ((), F)}),
    (call("BatchNormalization", "x s b m v", "y p q", "", training_mode=1),
     {"x": ((2, 3, 4, 4), F)} | dict.fromkeys("sbmv", ((3,), F))),
)  # fmt: skip


@pytest.mark.parametrize(("node", "inputs"), RUNNABLE, ids=lambda p: getattr(p, "op_type", ""))
def test_a_rule_says_what_onnxruntime_makes(
    tmp_path: Path, node: onnx.NodeProto, inputs: Inputs
) -> None:
    model = model_of(node, inputs, opset=14 if node.op_type == "LayerNormalization" else 17)
    assert read_types(tmp_path, model) == run_types(model)


def floats(*shape: int) -> TensorType:
    return TensorType(F, shape)


BIT = TensorType(TensorProto.BOOL, (1,))
IMAGE = (2, 3, 8, 8)
NORMED: Inputs = {"d": (IMAGE, F), "x": (IMAGE, F)} | dict.fromkeys("smv", ((3,), F))

WRITTEN_OUT: tuple[tuple[onnx.NodeProto, Inputs, tuple[TensorType, ...]], ...] = (
    (call("ReluGrad", "d y", "g"), {"d": (IMAGE, F), "y": (IMAGE, F)}, (floats(*IMAGE),)),
    (call("ConvGrad", "d x w", "dx dw db"),
     {"d": ((2, 6, 4, 4), F), "x": (IMAGE, F), "w": ((6, 3, 3, 3), F)},
     (floats(*IMAGE), floats(6, 3, 3, 3), floats(6))),
    (call("ConvGrad", "d x w", "_ dw"),
     {"d": ((2, 6, 4, 4), F), "x": (IMAGE, F), "w": ((6, 3, 3, 3), F)}, (floats(6, 3, 3, 3),)),
    (call("BatchNormInternal", "x s b m v", "y p q a c", training_mode=1),
     NORMED | {"b": ((3,), F)}, (floats(*IMAGE), *[floats(3)] * 4)),
    (call("BatchNormalizationGrad", "d x s m v", "dx ds db"), NORMED,
     (floats(*IMAGE), floats(3), floats(3))),
    (call("LayerNormalizationGrad", "d x s m v", "dx ds db"),
     {"d": ((2, 3, 4), F), "x": ((2, 3, 4), F), "s": ((4,), F), "m": ((2, 3, 1), F),
      "v": ((2, 3, 1), F)},
     (floats(2, 3, 4), floats(4), floats(4))),
    (call("SoftmaxCrossEntropyLossInternal", "x t", "l p"), {"x": ((6, 5), F), "t": ((6,), I64)},
     (floats(), floats(6, 5))),
    (call("SoftmaxCrossEntropyLossInternal", "x t", "l p", reduction="none"),
     {"x": ((6, 5), F), "t": ((6,), I64)}, (floats(6), floats(6, 5))),
    (call("SoftmaxCrossEntropyLossGrad", "d p t", "g"),
     {"d": ((), F), "p": ((6, 5), F), "t": ((6,), I64)}, (floats(6, 5),)),
    (call("InPlaceAccumulatorV2", "a g r", "flag"),
     {"a": ((3, 4), F), "g": ((3, 4), F), "r": ((1,), TensorProto.BOOL)}, (BIT,)),
    (call("InPlaceAccumulatorV2", "a g r", "flag sum"),
     {"a": ((3, 4), F), "g": ((3, 4), F), "r": ((1,), TensorProto.BOOL)}, (BIT, floats(3, 4))),
    (call("AdamOptimizer", "r t w g a b", "u ma mb nw"),
     {"r": ((), F), "t": ((), I64)} | dict.fromkeys("wgab", ((3, 4), F)),
     (TensorType(I64, ()), floats(3, 4), floats(3, 4), floats(3, 4))),
    (call("Scale", "x s"), {"x": (IMAGE, F), "s": ((), F)}, (floats(*IMAGE),)),
    (call("MixedPrecisionScale", "s x z", "p q", to=TensorProto.FLOAT16),
     {"s": ((), F), "x": ((3,), F), "z": ((2, 5), F)},
     (TensorType(TensorProto.FLOAT16, (3,)), TensorType(TensorProto.FLOAT16, (2, 5)))),
    (call("MixedPrecisionScale", "s x z", "p", to=TensorProto.FLOAT16, fuse_outputs=1),
     {"s": ((), F), "x": ((3,), F), "z": ((2, 5), F)}, (TensorType(TensorProto.FLOAT16, (13,)),)),
    (call("ReduceAllL2", "x z"), {"x": ((3,), F), "z": ((2, 5), F)}, (floats(),)),
    (call("ConcatTraining", "x z", "y n", axis=-1), {"x": ((2, 3), F), "z": ((2, 5), F)},
     (floats(2, 8), TensorType(I64, (2,)))),
    (call("BiasDropout", "x b", "y m"), {"x": ((3, 4), F), "b": ((4,), F)},
     (floats(3, 4), TensorType(TensorProto.BOOL, (3, 4)))),
    (call("BitmaskDropout", "x", "y m"), {"x": ((5, 7), F)},
     (floats(5, 7), TensorType(TensorProto.UINT32, (2,)))),
    (call("BiasSoftmax", "x b", axis=1, is_inner_broadcast=0),
     {"x": ((2, 3, 4), F), "b": ((1, 3, 4), F)}, (floats(2, 3, 4),)),
    (call("IsAllFinite", "x z"), {"x": ((3,), F), "z": ((2, 5), F)},
     (TensorType(TensorProto.BOOL, ()),)),
)  # fmt: skip
"""What stock onnxruntime has no kernel for on a CPU: as its training build registers it."""


@pytest.mark.parametrize(
    ("node", "inputs", "made"), WRITTEN_OUT, ids=lambda p: getattr(p, "op_type", "")
)
def test_a_rule_says_what_the_training_build_makes(
    tmp_path: Path, node: onnx.NodeProto, inputs: Inputs, made: tuple[TensorType, ...]
) -> None:
    assert tuple(read_types(tmp_path, model_of(node, inputs)).values()) == made


@pytest.mark.parametrize(
    ("op_type", "reads", "made"),
    [
        ("GatherGrad", "shape i d", floats(9, 4)),
        ("SliceGrad", "d shape i i", floats(9, 4)),
        ("GatherElementsGrad", "d shape i", floats(9, 4)),
    ],
)
def test_a_gradient_has_the_shape_that_it_is_told(
    tmp_path: Path, op_type: str, reads: str, made: TensorType
) -> None:
    inputs: Inputs = {"i": ((2,), I64), "d": ((2, 4), F)}
    model = model_of(call(op_type, reads, "g"), inputs)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([9, 4]), "shape"))
    assert read_types(tmp_path, model) == {"g": made}


def test_a_shape_that_depends_on_data_is_refused_by_name(tmp_path: Path) -> None:
    inputs: Inputs = {"shape": ((2,), I64), "i": ((2,), I64), "d": ((2, 4), F)}
    model = model_of(call("GatherGrad", "shape i d", "g"), inputs)
    with pytest.raises(InputError, match="depends on the value of 'shape', its input 0"):
        read_types(tmp_path, model)


@pytest.mark.parametrize("domain", ["", MS])
def test_the_gradient_of_a_pool_has_the_shape_of_what_was_pooled(
    tmp_path: Path, domain: str
) -> None:
    pool = call("MaxPool", "x", "y m", "", kernel_shape=[2, 2], strides=[2, 2])
    model = model_of(pool, {"x": ((1, 2, 7, 7), F), "d": ((1, 2, 3, 3), F)})
    model.graph.node.append(call("MaxPoolGrad", "d m", "g", domain))
    model.graph.output.append(onnx.ValueInfoProto(name="g"))
    assert read_types(tmp_path, model)["g"] == floats(1, 2, 7, 7)


def test_factors_that_do_not_fit_are_refused_by_name(tmp_path: Path) -> None:
    model = model_of(call("FusedMatMul", "x w"), {"x": ((2, 3), F), "w": ((4, 5), F)})
    with pytest.raises(InputError, match=r"multiplies \[2, 3\] by \[4, 5\], which do not fit"):
        read_types(tmp_path, model)


@pytest.mark.parametrize("domain", ["", MS])
@pytest.mark.parametrize(("made", "size"), [("x_grad", 8), ("g", 8), ("x_grad", 7), ("g", 7)])
def test_the_gradient_of_an_average_pool_has_the_shape_of_what_was_pooled(
    tmp_path: Path, domain: str, made: str, size: int
) -> None:
    attributes = {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [0, 0, 1, 1]}
    pool = call("AveragePool", "x", "y", "", **attributes)
    other = call("AveragePool", "z", "u", "", **attributes)
    model = model_of(pool, {"x": ((1, 2, size, size), F), "z": ((1, 2, 3, 3), F)})
    pooled = run_types(model)["y"]
    model.graph.node.insert(0, other)
    model.graph.input.append(helper.make_tensor_value_info("d", F, pooled.shape))
    model.graph.node.append(call("AveragePoolGrad", "d", made, domain, **attributes))
    model.graph.output.append(onnx.ValueInfoProto(name=made))
    assert read_types(tmp_path, model)[made] == floats(1, 2, size, size)


def test_the_gradient_of_an_average_pool_that_is_not_there_is_refused_by_name(
    tmp_path: Path,
) -> None:
    node = call("AveragePoolGrad", "d", "g", "", kernel_shape=[2, 2])
    with pytest.raises(InputError, match="no tensor is known of which op AveragePoolGrad"):
        read_types(tmp_path, model_of(node, {"d": ((1, 2, 3, 3), F)}))


@pytest.mark.parametrize(
    ("one", "other"),
    [((4, 3), (3,)), ((3,), (4, 3)), ((2, 1, 5), (1, 7, 1)), ((2, 3), (2, 3)), ((), (2, 3))],
)
def test_a_gradient_is_summed_along_the_axes_of_its_broadcast(
    tmp_path: Path, one: Shape, other: Shape
) -> None:
    add = call("Add", "x z", "y", "")
    model = model_of(add, {"x": (one, F), "z": (other, F)})
    broadcast = run_types(model)["y"]
    for name, read in (("sx", "x"), ("sz", "z")):
        model.graph.node.append(call("Shape", read, name, ""))
    model.graph.node.append(call("BroadcastGradientArgs", "sx sz", "ax az"))
    model.graph.input.append(helper.make_tensor_value_info("d", F, broadcast.shape))
    for axes, made, shape in (("ax", "gx", "sx"), ("az", "gz", "sz")):
        sums = call("ReduceSumTraining", f"d {axes}", f"r{made}", keepdims=1,
                    noop_with_empty_axes=1)  # fmt: skip
        model.graph.node.extend((sums, call("Reshape", f"r{made} {shape}", made, "")))
        model.graph.output.append(onnx.ValueInfoProto(name=made))
        model.graph.output.append(onnx.ValueInfoProto(name=f"r{made}"))
    types = read_types(tmp_path, model)
    assert (types["gx"], types["gz"]) == (floats(*one), floats(*other))
    # What is left after the sums has as many elements as what was broadcast.
    left = [math.prod(types[name].shape) for name in ("rgx", "rgz")]
    assert left == [math.prod(one), math.prod(other)]


def test_shapes_that_do_not_broadcast_are_refused_by_name(tmp_path: Path) -> None:
    model = model_of(call("BroadcastGradientArgs", "s t", "a b"), {})
    for name, value in (("s", [2, 3]), ("t", [2, 4])):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(value), name))
    with pytest.raises(InputError, match=r"shapes \[2, 3\] and \[2, 4\] do not broadcast"):
        read_types(tmp_path, model)
