"""Gradient operators of onnxruntime's training build.

What they make follows orttraining/core/graph/training_op_defs.cc of onnxruntime 1.31.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import onnx

from checkmate.errors import InputError
from checkmate.onnxio.model import TensorType
from checkmate.onnxio.order import describe
from checkmate.onnxio.shape_rules.call import Call, Made, Rule, infer_as, like


def _convolve(call: Call) -> Made:
    """Return gradients of data, weights and bias, which has an element per channel."""
    gradient, data, weights = (call.read(position) for position in range(3))
    return data, weights, TensorType(gradient.elem_type, gradient.shape[1:2])


def _reshape_to(shape: int, gradient: int) -> Rule:
    """Return the rule of an op that is told the shape of what it makes."""
    return lambda call: (TensorType(call.read(gradient).elem_type, call.evaluate(shape)),)


def _pool(call: Call) -> Made:
    """Return the gradient of what the pooling read that made the indices."""
    pool = call.makers.get(call.node.input[1]) if call.has(1) else None
    if pool is None or not pool.input or pool.input[0] not in call.types:
        raise InputError(f"op {describe(call.node)} reads indices that no MaxPool makes")
    return (TensorType(call.read(0).elem_type, call.types[pool.input[0]].shape),)


def _pool_average(call: Call) -> Made:
    """Return the gradient of what was pooled, which the op does not read.

    It is named after what it is the gradient of; else what some AveragePool of the graph read. The
    pool makes what the gradient that is read is like.
    """
    gradient, stem = call.read(0), call.node.output[0].removesuffix("_grad")
    pools = (node for node in call.makers.values() if node.op_type == "AveragePool")
    for name in (stem, *(node.input[0] for node in pools)):
        if name in call.types and _makes_pooled(call, name, gradient):
            return (TensorType(gradient.elem_type, call.types[name].shape),)
    raise InputError(f"no tensor is known of which op {describe(call.node)} makes the gradient")


def _makes_pooled(call: Call, name: str, pooled: TensorType) -> bool:
    """Return whether the average pool that ``call`` is the gradient of makes ``pooled`` of it."""
    pool = onnx.NodeProto(input=[name], output=["made"], attribute=call.node.attribute)
    try:
        return infer_as("AveragePool")(replace(call, node=pool)) == (pooled,)
    except onnx.shape_inference.InferenceError:
        return False


RULES: Mapping[str, Rule] = {
    "AbsGrad": like(0),
    "AveragePoolGrad": _pool_average,
    "BatchNormalizationGrad": like(1, 2, 2),
    "BiasFastGeluGrad_dX": like(0),
    "BiasGeluGrad_dX": like(0),
    "BitmaskDropoutGrad": like(0),
    "ConvGrad": _convolve,
    "ConvTransposeGrad": _convolve,
    "DropoutGrad": like(0),
    "FakeQuantGrad": like(0),
    "FastGeluGrad": like(0),
    "GatherElementsGrad": _reshape_to(1, 0),
    "GatherGrad": _reshape_to(0, 2),
    "GatherNDGrad": _reshape_to(0, 2),
    "GeluGrad": like(0),
    "InvertibleLayerNormalizationGrad": like(0, 2, 2),
    "LayerNormalizationGrad": like(1, 2, 2),
    "LeakyReluGrad": like(0),
    "LogSoftmaxGrad": like(0),
    "LogSoftmaxGrad_13": like(0),
    "MaxPoolGrad": _pool,
    "QuickGeluGrad": like(0),
    "ReluGrad": like(0),
    "SigmoidGrad": like(0),
    "SimplifiedLayerNormalizationGrad": like(1, 2),
    "SliceGrad": _reshape_to(1, 0),
    "SoftmaxCrossEntropyGrad": like(1),
    "SoftmaxCrossEntropyLossGrad": like(1),
    "SoftmaxCrossEntropyLossInternalGrad": like(1),
    "SoftmaxGrad": like(0),
    "SoftmaxGrad_13": like(0),
    "SparseSoftmaxCrossEntropyGrad": like(1),
    "TanhGrad": like(0),
}
"""Of the com.microsoft domain."""

_STANDARD = ("AveragePoolGrad", "GatherGrad", "MaxPoolGrad", "SparseSoftmaxCrossEntropyGrad")
STANDARD_RULES: Mapping[str, Rule] = {name: RULES[name] for name in _STANDARD}
"""Of the standard domain, in which onnxruntime's training build has them."""
