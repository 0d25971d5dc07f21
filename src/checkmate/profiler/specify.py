"""What the inputs of a whole model may hold."""

from __future__ import annotations

import onnx

from checkmate.onnxio.model import Model
from checkmate.onnxio.ranges import find_index_bounds
from checkmate.profiler.steering import is_positive
from checkmate.runtime.protocol import TensorSpec

_KEEPS_SIGN = frozenset(
    {"Add", "Cast", "Clip", "Identity", "Max", "Mul", "Reshape", "Squeeze", "Sum", "Unsqueeze"}
)
"""Ops whose output is above zero when all of their inputs are."""


def specify_inputs(model: Model) -> tuple[TensorSpec, ...]:
    """Return the inputs that a run of ``model`` needs, with the range of each.

    Integers that become indices stay within what they index; floats whose root or logarithm is
    taken, such as Adam's second moment, are above zero.
    """
    initializers = {tensor.name for tensor in model.proto.graph.initializer}
    uppers = find_index_bounds(model)
    positive: set[str] = set()
    for node in reversed(model.nodes):
        _trace_back(node, positive)
    return tuple(
        TensorSpec(
            item.name,
            model.types[item.name].elem_type,
            model.types[item.name].shape,
            uppers.get(item.name),
            item.name in positive,
        )
        for item in model.proto.graph.input
        if item.name not in initializers
    )


def _trace_back(node: onnx.NodeProto, positive: set[str]) -> None:
    """Note which inputs of ``node`` must be above zero, for itself or for its readers."""
    positive.update(name for i, name in enumerate(node.input) if is_positive(node, i))
    if node.op_type in _KEEPS_SIGN and positive.intersection(node.output):
        positive.update(node.input)
