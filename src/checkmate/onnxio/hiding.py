"""Shapes kept from onnxruntime until the run.

Under default options onnxruntime keeps the memory of a dead tensor for a later one where it knows
that both have the same shape, which a schedule does not count on. It knows the shapes of graph
inputs, and of what is reshaped to constants, and follows them through the graph. So nodes read
inputs through a Reshape, and constant shapes plus zero, both by numbers that the run brings.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import onnx

from checkmate.onnxio.fence_maker import FenceMaker
from checkmate.onnxio.order import HOISTED_OPS, wire
from checkmate.onnxio.renaming import rename_reads
from checkmate.onnxio.views import VIEW_OPS

_STANDARD = ("", "ai.onnx")
_DOMAINS = (*_STANDARD, "com.microsoft")
"""Operators of other domains may write over what they read."""

_SHAPE_POSITIONS: Mapping[str, int] = {"ConstantOfShape": 0, "Expand": 1, "Reshape": 1}
"""Which input is the shape of the output."""


def hide_shapes(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, ...]],
    constants: Mapping[str, tuple[int, ...]],
    maker: FenceMaker,
) -> dict[str, tuple[int, ...]]:
    """Make ``nodes`` read ``inputs`` and shapes among ``constants`` hidden, in place.

    Both come with their shapes. Returns the shapes of what is read instead. Nothing is hidden in a
    graph without inputs, which brings nothing that is not known before.
    """
    if not inputs:
        return {}
    # A Max of two: onnxruntime follows the value of a single Size.
    names = list(inputs)
    maker.start_fence(0, (names[0], names[-1]))
    large = {name: shape for name, shape in inputs.items() if shape and math.prod(shape) > 1}
    hidden: dict[str, str] = {}
    blurred: dict[str, str] = {}
    for node in nodes:
        for name in _list_read(node):
            if name in large and name not in hidden:
                hidden[name] = maker.fence(name, len(large[name]), guarded=False)
        rename_reads(node, {name: hidden[name] for name in _list_read(node) if name in hidden})
        position = _find_shape(node)
        if position is not None and node.input[position] in constants:
            name = node.input[position]
            node.input[position] = blurred[name] = maker.blur(name)
    shapes = {hidden[name]: large[name] for name in hidden}
    return shapes | {blurred[name]: constants[name] for name in blurred}


def _list_read(node: onnx.NodeProto) -> Iterator[str]:
    """Yield what ``node`` reads, where it may read it hidden.

    Views take no memory; with a view, onnxruntime could fuse the Reshape.
    """
    is_apart = node.op_type in HOISTED_OPS | VIEW_OPS and node.domain in _STANDARD
    if node.domain in _DOMAINS and not is_apart:
        yield from wire(node).reads


def _find_shape(node: onnx.NodeProto) -> int | None:
    """Return which input of ``node`` is the shape of what it makes."""
    return _SHAPE_POSITIONS.get(node.op_type) if node.domain in _STANDARD else None
