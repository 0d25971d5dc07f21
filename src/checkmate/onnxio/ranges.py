"""Which values the integer inputs of a model may have."""

from __future__ import annotations

import math
from collections.abc import Iterator

import onnx

from checkmate.onnxio.model import Model
from checkmate.onnxio.views import VIEW_OPS

_CARRIERS = VIEW_OPS | {"Cast", "Transpose", "Slice", "Expand", "Concat", "Split"}
"""Ops whose output has the values of their first input (of any input, for Concat)."""


def find_index_bounds(model: Model) -> dict[str, int]:
    """Return, per graph input that is used as an index, how many values are in range.

    Valid values are 0 ... bound - 1. Inputs that nothing indexes with are absent.
    """
    bounds: dict[str, int] = {}
    carried = {item.name: {item.name} for item in model.proto.graph.input}
    for node in model.nodes:
        if node.op_type in _CARRIERS:
            origins = set().union(*(carried.get(name, set()) for name in node.input))
            carried.update((name, origins) for name in node.output if name and origins)
        for index, bound in _find_indices(model, node):
            for origin in sorted(carried.get(index, ())):
                bounds[origin] = min(bound, bounds.get(origin, bound))
    return bounds


def _find_indices(model: Model, node: onnx.NodeProto) -> Iterator[tuple[str, int]]:
    """Yield the index tensors of ``node``, each with the size of what it points into.

    Nothing for shapes that onnxruntime refuses, as it says better why.
    """
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
    if node.op_type in ("Gather", "GatherElements", "ScatterElements"):
        shape = model.types[node.input[0]].shape
        if -len(shape) <= axis < len(shape):
            yield node.input[1], shape[axis]
    elif node.op_type in ("GatherND", "ScatterND"):
        for depth in model.types[node.input[1]].shape[-1:]:
            yield node.input[1], min(model.types[node.input[0]].shape[:depth], default=1)
    elif node.op_type == "OneHot" and node.input[1] in model.values:
        yield node.input[0], int(model.values[node.input[1]].max())
    elif node.op_type in ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"):
        yield node.input[1], math.prod(model.types[node.input[0]].shape[1:2])
