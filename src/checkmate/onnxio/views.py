"""Ops whose output is their input under another shape."""

from __future__ import annotations

from collections.abc import Container

import onnx

VIEW_OPS = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"})
"""Ops that onnxruntime runs without a copy: the output is the buffer of the first input."""


def is_view_op(node: onnx.NodeProto) -> bool:
    """Return whether ``node`` makes another shape of its first input."""
    return node.domain in ("", "ai.onnx") and node.op_type in VIEW_OPS and len(node.output) == 1


def find_source(node: onnx.NodeProto, graph_outputs: Container[str]) -> str | None:
    """Return the tensor whose storage the output of ``node`` shares; None: it has its own.

    A graph output always has its own: onnxruntime hands it to the caller, so it copies.
    """
    return node.input[0] if is_view_op(node) and node.output[0] not in graph_outputs else None
