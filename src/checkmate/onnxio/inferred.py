"""The shapes that a session knows before it runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import onnx

from checkmate.onnxio.order import Wiring

Dims = tuple[int | str | None, ...]
"""Each a number, the name of a symbolic dimension, or unknown."""

_SHAPED_BY_VALUES = frozenset(
    {"Expand", "Pad", "Reshape", "Resize", "Slice", "Split", "Tile", "TopK", "Unsqueeze"}
)
"""Ops whose outputs have shapes that later inputs say."""


def infer_dims(proto: onnx.ModelProto, *, follows_values: bool = False) -> dict[str, Dims]:
    """Return the dimensions that onnx infers of inputs and of what ops make, by name.

    Those that ``proto`` states are believed. ``follows_values``: small tensors that say shapes are
    worked out too. Names that onnx makes up for dimensions count as unknown: onnxruntime has none.
    """
    try:
        graph = onnx.shape_inference.infer_shapes(proto, data_prop=follows_values).graph
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError):
        return {}
    stated = (*proto.graph.input, *proto.graph.value_info, *proto.graph.output)
    names = {
        dim.dim_param for item in stated for dim in item.type.tensor_type.shape.dim if dim.dim_param
    }
    return {
        item.name: tuple(_read(dim, names) for dim in item.type.tensor_type.shape.dim)
        for item in (*graph.input, *graph.value_info, *graph.output)
        if item.type.tensor_type.HasField("shape")
    }


def find_sized(
    given: Collection[str], wirings: Sequence[Wiring], dims: Mapping[str, Dims]
) -> dict[str, Dims | None]:
    """Return the tensors of which a session knows the shape, and the dimensions where onnx does.

    ``wirings`` are in an order in which they can run and read ``given``, which are known. Of
    operators beyond the standard onnx knows nothing, nor of what is made of theirs; onnxruntime
    follows what they read.
    """
    sized: dict[str, Dims | None] = {name: dims.get(name) for name in given}
    for wiring in wirings:
        follows = _is_followed(wiring, given, sized)
        for name in wiring.makes:
            known = dims.get(name)
            if known is not None and None not in known:
                sized[name] = known
            elif follows:
                sized[name] = None
    return sized


def _is_followed(wiring: Wiring, given: Collection[str], sized: Mapping[str, Dims | None]) -> bool:
    """Return whether onnxruntime knows what an op makes although onnx may not."""
    if any(name not in sized for name in wiring.reads):
        return False
    if wiring.node.domain not in ("", "ai.onnx"):
        return True
    is_computed = wiring.node.op_type in _SHAPED_BY_VALUES and any(
        name not in given for name in wiring.reads[1:]
    )
    is_beyond = any(name not in given and sized[name] is None for name in wiring.reads)
    return is_beyond and not is_computed


def is_same_shape(sized: Mapping[str, Dims | None], first: str, second: str) -> bool:
    """Return whether a session knows that two tensors, equal in a run, always are."""
    if first not in sized or second not in sized:
        return False
    known = sized[first], sized[second]
    return None in known or known[0] == known[1]


def _read(dim: onnx.TensorShapeProto.Dimension, names: Collection[str]) -> int | str | None:
    if dim.HasField("dim_value"):
        return dim.dim_value
    return dim.dim_param if dim.dim_param in names else None
