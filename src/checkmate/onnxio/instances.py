"""Types of what rewritten nodes make: originals and copies."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from checkmate.graph import OpId
from checkmate.onnxio.model import Model, TensorType


def find_types(
    model: Model, order: Sequence[OpId], nodes: Sequence[onnx.NodeProto]
) -> dict[str, TensorType]:
    """Return the type of every tensor; ``nodes`` are the computes of ``order``."""
    types = dict(model.types)
    for op, node in zip(order, nodes, strict=True):
        for made, name in zip(node.output, model.nodes[op].output, strict=True):
            if name:
                types[made] = model.types[name]
    return types
