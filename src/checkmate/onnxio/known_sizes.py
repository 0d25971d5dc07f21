"""Sizes that follow from the inputs, as constants.

onnxruntime folds `Shape` where it knows a shape, but not `Size`. The mean of a loss divides by a
size, so that a scalar would be made in each run; on CUDA by ops on the host, whose copies to the
device onnxruntime puts behind everything that is ready.
"""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import helper, numpy_helper

from checkmate.onnxio.inferred import infer_dims


def fix_sizes(proto: onnx.ModelProto) -> None:
    """Replace each `Size` in ``proto`` whose value follows from the inputs by a constant."""
    if not any(_is_size(node) for node in proto.graph.node):
        return
    shapes = _infer_shapes(proto)
    outputs = {item.name for item in proto.graph.output}
    for node in proto.graph.node:
        if _is_size(node) and node.input[0] in shapes and node.output[0] not in outputs:
            value = np.array(math.prod(shapes[node.input[0]]), dtype=np.int64)
            tensor = numpy_helper.from_array(value)
            node.CopyFrom(
                helper.make_node("Constant", [], list(node.output), name=node.name, value=tensor)
            )


def _is_size(node: onnx.NodeProto) -> bool:
    return node.op_type == "Size" and node.domain in ("", "ai.onnx")


def _infer_shapes(proto: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """Return the shapes of which every dimension follows from the inputs.

    Those that are stated of what ops make are not believed: some depend on data.
    """
    bare = onnx.ModelProto()
    bare.CopyFrom(proto)
    del bare.graph.value_info[:]
    for item in bare.graph.output:
        item.type.tensor_type.ClearField("shape")
    return {
        name: known
        for name, dims in infer_dims(bare, follows_values=True).items()
        if len(known := tuple(dim for dim in dims if isinstance(dim, int))) == len(dims)
    }
