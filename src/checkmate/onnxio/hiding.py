"""Shapes of graph inputs, and that weights are constants, kept from onnxruntime until the run.

Under default options onnxruntime keeps the memory of a dead tensor for a later one where it knows
that both have the same shape, which a schedule does not count on. It follows shapes from the
inputs through the graph. So nodes read inputs through a Reshape to a shape that the run brings.

Of weights that are constants, default options make copies in the layout of a kernel, and let
convolutions run in a blocked layout, between nodes that reorder. None is planned, so weights are
read in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx

from checkmate.onnxio.fence_maker import FenceMaker
from checkmate.onnxio.model import TensorType
from checkmate.onnxio.order import HOISTED_OPS, wire
from checkmate.onnxio.renaming import rename_reads
from checkmate.onnxio.views import VIEW_OPS

_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16)
_MIN_PACKED_SIZE = 128
"""Elements."""
_STANDARD = ("", "ai.onnx")
_DOMAINS = (*_STANDARD, "com.microsoft")
"""Operators of other domains may write over what they read."""


def find_packed(weights: Iterable[str], types: Mapping[str, TensorType]) -> list[str]:
    """Return the names of ``weights`` of which onnxruntime may hold copies in another layout.

    Small ones may be what a kernel wants as a constant.
    """
    return [
        name
        for name in weights
        if types[name].elem_type in _FLOATS and math.prod(types[name].shape) >= _MIN_PACKED_SIZE
    ]


def hide_inputs(
    nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, tuple[int, ...]], maker: FenceMaker
) -> dict[str, tuple[int, ...]]:
    """Make ``nodes`` read ``inputs``, which come with their shapes, hidden, in place.

    Returns the shapes of what is read instead.
    """
    large = {name: shape for name, shape in inputs.items() if shape and math.prod(shape) > 1}
    if not large:
        return {}
    # A Max of two: onnxruntime follows the value of a single Size.
    names = list(large)
    maker.start_fence(0, (names[0], names[-1]))
    hidden: dict[str, str] = {}
    for node in nodes:
        read = [name for name in _list_read(node) if name in large]
        for name in read:
            hidden[name] = maker.fence(name, len(large[name]), guarded=False)
        rename_reads(node, {name: hidden[name] for name in read})
    return {hidden[name]: large[name] for name in hidden}


def _list_read(node: onnx.NodeProto) -> Iterator[str]:
    """Yield what ``node`` reads, where it may read it hidden.

    Views take no memory; with a view, onnxruntime could fuse the Reshape.
    """
    is_apart = node.op_type in HOISTED_OPS | VIEW_OPS and node.domain in _STANDARD
    if node.domain in _DOMAINS and not is_apart:
        yield from wire(node).reads
