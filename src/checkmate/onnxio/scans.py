"""Shapes of what the bodies of Scan make.

onnxruntime allocates what a Scan gathers before the first turn, and refuses to run one whose body
does not say the shapes, or has them follow from tensors of known shape. Behind fences none has.
"""

from __future__ import annotations

import onnx

from checkmate.onnxio.model import Model


def state_scanned(model: Model, node: onnx.NodeProto, made: str) -> None:
    """Let the body of ``node`` say the shapes of its outputs, when it is a Scan.

    ``made`` is its first output in ``model``.
    """
    if node.op_type != "Scan" or node.domain not in ("", "ai.onnx"):
        return
    for attribute in node.attribute:
        for body in model.bodies.get(made, ()) if attribute.name == "body" else ():
            for output, name in zip(attribute.g.output, body.outputs, strict=True):
                known = body.types[name]
                info = onnx.helper.make_tensor_value_info(name, known.elem_type, known.shape)
                output.type.CopyFrom(info.type)
