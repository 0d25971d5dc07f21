"""What is odd about a model without being wrong: it is planned all the same."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from checkmate.onnxio.cutting import is_cut
from checkmate.onnxio.load import has_external_data
from checkmate.onnxio.model import Model
from checkmate.onnxio.order import describe, wire
from checkmate.onnxio.shape_rules import is_training_only

_DOUBLE = onnx.TensorProto.DOUBLE
_INT32, _INT64 = onnx.TensorProto.INT32, onnx.TensorProto.INT64
_BODIED: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("Elu", "HardSigmoid", "LeakyRelu", "Selu", "Softplus"), (_DOUBLE,)),
    **dict.fromkeys(("Softsign", "ThresholdedRelu"), (_DOUBLE,)),
    "PRelu": (_DOUBLE, _INT32, _INT64),
    "Relu": (_INT64,),
}
"""Per operator: types for which onnxruntime's CPU provider has no kernel, so that it runs the body
that onnx gives the operator. Measured with onnxruntime 1.31.1 and operator set 18, the last one
before 22 for which it does; under others it refuses most of these."""


def find_unrunnable(model: Model) -> str | None:
    """Return which ops stock onnxruntime has no kernels for; None: none are known."""
    nodes = [node for node in model.nodes if is_training_only(node)]
    if not nodes:
        return None
    kinds = dict.fromkeys(node.op_type for node in nodes)
    more = f" and {len(nodes) - 1} more ops of {len(kinds)} kinds" if len(nodes) > 1 else ""
    return f"{describe(nodes[0])}{more}"


def find_complaint(model: Model) -> str | None:
    """Return what onnx has against a model; None: nothing.

    Of models with weights in other files the checker is not asked: it would look for them
    elsewhere.
    """
    if model.complaints:
        more = f" and {len(model.complaints) - 1} more" if len(model.complaints) > 1 else ""
        return model.complaints[0] + more
    if has_external_data(model.proto):
        return None
    try:
        onnx.checker.check_model(_leave_out_cut(model))
    except Exception as error:  # the checker has errors of its own, and of whatever it calls
        return next((line for line in str(error).splitlines() if line), type(error).__name__)
    return None


def find_unmasked(model: Model) -> str | None:
    """Return a Dropout in training mode of which nobody reads the mask; None: there is none.

    Measured with onnxruntime 1.31.1: by default its optimizers take such a Dropout for one that
    drops nothing, and away, unless it reads an input of the graph.
    """
    read = {name for node in model.nodes for name in wire(node).reads}
    read.update(output.name for output in model.proto.graph.output)
    for op, node in zip(model.graph.ops, model.nodes, strict=True):
        is_standard = node.domain in ("", "ai.onnx") and node.op_type == "Dropout"
        if is_standard and not op.recomputable and read.isdisjoint(node.output[1:]):
            return describe(node)
    return None


def find_bodied(model: Model) -> str | None:
    """Return an op in place of which onnxruntime runs what onnx defines it by; None: there is none.

    Those that it replaces whatever their types are read as their bodies.
    """
    if model.is_optimized:
        return None
    for node in model.nodes:
        types = _BODIED.get(node.op_type, ()) if node.domain in ("", "ai.onnx") else ()
        if types and model.types[node.input[0]].elem_type in types:
            return describe(node)
    return None


def _leave_out_cut(model: Model) -> onnx.ModelProto:
    """Return the model with inputs in place of the weights that were left in its file."""
    given = {item.name for item in model.proto.graph.input}
    cut = [t.name for t in model.proto.graph.initializer if is_cut(t)]
    if not cut:
        return model.proto
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    kept = [tensor for tensor in proto.graph.initializer if not is_cut(tensor)]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(kept)
    for name in cut:
        if name not in given:
            known = model.types[name]
            info = onnx.helper.make_tensor_value_info(name, known.elem_type, known.shape)
            proto.graph.input.append(info)
    return proto
