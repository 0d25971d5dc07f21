"""Which ops cost the same: one canonical text per kind of op, and its digest."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx

from checkmate.onnxio.views import find_source
from checkmate.profiler.surroundings import Surroundings, find_opset

_N_SPELLED_OUT = 16
"""Longer constants are told apart by their digest."""


@dataclass(frozen=True)
class Signature:
    """All that decides what an op costs on a given device."""

    text: str
    """Canonical JSON."""

    @cached_property
    def key(self) -> str:
        """Hexadecimal digest of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def sign(node: onnx.NodeProto, around: Surroundings) -> Signature:
    """Return the signature of ``node``.

    It holds the operator with its version, the attributes (except those whose name starts with
    two underscores, which mean nothing to onnxruntime), types and shapes of inputs and outputs,
    which outputs exist, which inputs are weights, which are one tensor read twice, and the value
    of those that are small and known: a shape, an axis, an exponent choose the kernel's path. A
    view is another op than the copy that onnxruntime makes for a graph output.
    """
    domain, version = find_opset(node, around)
    document: dict[str, object] = {
        "domain": domain,
        "op": node.op_type,
        "version": version,
        "attributes": _describe_attributes(node),
        "inputs": [_describe_input(node, position, around) for position in range(len(node.input))],
        "outputs": [_describe_type(name, around) for name in node.output],
    }
    if find_source(node, around.outputs) is not None:
        document["view"] = True
    return Signature(json.dumps(document, separators=(",", ":"), sort_keys=True))


def find_kind(node: onnx.NodeProto, around: Surroundings) -> str:
    """Return what decides, whatever the shapes, whether there is a kernel for ``node``."""
    types = [around.types.get(name) for name in (*node.input, *node.output)]
    return json.dumps(
        [
            *find_opset(node, around),
            node.op_type,
            _describe_attributes(node),
            [None if known is None else known.elem_type for known in types],
            len(node.input),
        ]
    )


def is_embedded(name: str, around: Surroundings) -> bool:
    """Return whether the value of an input is part of what the op is: numbers that steer it."""
    value = around.values.get(name)
    return value is not None and (value.dtype.kind in "iub" or value.size == 1)


def _describe_attributes(node: onnx.NodeProto) -> list[list[str]]:
    return [
        [attribute.name, _digest(attribute)]
        for attribute in sorted(node.attribute, key=lambda a: a.name)
        if not attribute.name.startswith("__")
    ]


def _describe_input(node: onnx.NodeProto, position: int, around: Surroundings) -> list[object]:
    name = node.input[position]
    if not name:
        return []
    kind: list[object] = _describe_type(name, around)
    if is_embedded(name, around):
        return [*kind, "value", _describe_value(around.values[name])]
    first = list(node.input).index(name)
    return [*kind, "weight" if name in around.weights else "given", first]


def _describe_type(name: str, around: Surroundings) -> list[object]:
    known = around.types.get(name)
    return [] if known is None else [known.elem_type, list(known.shape)]


def _describe_value(value: np.ndarray) -> object:
    if value.dtype.kind in "iub" and value.size <= _N_SPELLED_OUT:
        return value.tolist()
    return hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()


def _digest(attribute: onnx.AttributeProto) -> str:
    bare = onnx.AttributeProto()
    bare.CopyFrom(attribute)
    bare.doc_string = ""
    return hashlib.sha256(bare.SerializeToString(deterministic=True)).hexdigest()
