"""A digest of what a schedule depends on, so that re-saving a model does not orphan it."""

from __future__ import annotations

import hashlib
import json

import onnx

from checkmate.onnxio.model import Model


def digest_model(model: Model) -> str:
    """Return the SHA-256 of the model's structure: names, types, shapes, edges, attributes.

    Weights, documentation and metadata do not count; neither does the way the file is encoded.
    """
    structure = {
        "opsets": sorted((entry.domain, entry.version) for entry in model.proto.opset_import),
        "resident": [
            (tensor.name, *_describe_type(model, tensor.name))
            for tensor in model.graph.tensors
            if tensor.producer is None and tensor.name in model.types
        ],
        "ops": [
            (
                op.name,
                node.domain,
                node.op_type,
                list(node.input),
                [(name, *_describe_type(model, name)) for name in node.output if name],
                sorted(map(_digest_attribute, node.attribute)),
            )
            for op, node in zip(model.graph.ops, model.nodes, strict=True)
        ],
        "outputs": [model.graph.tensors[output].name for output in model.graph.outputs],
    }
    text = json.dumps(structure, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _describe_type(model: Model, name: str) -> tuple[int, list[int]]:
    known = model.types[name]
    return known.elem_type, list(known.shape)


def _digest_attribute(attribute: onnx.AttributeProto) -> str:
    plain = onnx.AttributeProto()
    plain.CopyFrom(attribute)
    plain.doc_string = ""
    content = plain.SerializeToString(deterministic=True)
    return f"{attribute.name}:{hashlib.sha256(content).hexdigest()}"
