"""Symbolic dimensions of a model's inputs, and their values."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from checkmate.errors import InputError, UsageError
from checkmate.onnxio.model import TensorType
from checkmate.onnxio.sanity import check_shape


def find_dims(graph: onnx.GraphProto) -> dict[str, list[str]]:
    """Return, per symbolic dimension, the inputs that have it."""
    found: dict[str, list[str]] = {}
    for item in graph.input:
        for dim in item.type.tensor_type.shape.dim:
            if dim.dim_param:
                found.setdefault(dim.dim_param, []).append(item.name)
    return found


def bind_inputs(graph: onnx.GraphProto, dims: Mapping[str, int]) -> dict[str, TensorType]:
    """Return the types of the graph inputs, with ``dims`` in place of symbolic dimensions.

    Raises `UsageError` when ``dims`` names what no input has, `InputError` when a dimension of an
    input stays unknown or an input is not a tensor.
    """
    known = find_dims(graph)
    for name in dims:
        if name not in known:
            listed = ", ".join(sorted(known)) or "none"
            raise UsageError(
                f"no input has a dimension {name!r}", hint=f"symbolic dimensions: {listed}"
            )
    return {item.name: _bind_input(item, dims) for item in graph.input}


def _bind_input(item: onnx.ValueInfoProto, dims: Mapping[str, int]) -> TensorType:
    if item.type.WhichOneof("value") != "tensor_type":
        kind = str(item.type.WhichOneof("value")).removesuffix("_type").replace("_", " ")
        raise InputError(f"input {item.name!r} is not a tensor but a {kind}; it cannot be planned")
    tensor_type = item.type.tensor_type
    if not tensor_type.HasField("shape"):
        raise InputError(f"input {item.name!r} has no shape", hint="export it with its rank")
    shape: list[int] = []
    for axis, dim in enumerate(tensor_type.shape.dim):
        if dim.HasField("dim_value"):
            shape.append(dim.dim_value)
        elif dim.dim_param in dims:
            shape.append(dims[dim.dim_param])
        else:
            raise _unbound(item.name, axis, dim.dim_param)
    check_shape(item.name, shape)
    return TensorType(tensor_type.elem_type, tuple(shape))


def _unbound(name: str, axis: int, param: str) -> InputError:
    if param:
        message = f"input {name!r} has the symbolic dimension {param!r} (axis {axis})"
        return InputError(message, hint=f"bind it with --dim {param}=VALUE")
    return InputError(
        f"input {name!r} has an unknown dimension without a name (axis {axis})",
        hint="name the dimension in the file, then bind it with --dim NAME=VALUE",
    )
