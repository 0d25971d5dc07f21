"""The type of every tensor, by onnx shape inference and partial evaluation in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import numpy_helper

from checkmate.errors import InputError
from checkmate.onnxio.contrib import is_opaque, stand_in
from checkmate.onnxio.model import TensorType
from checkmate.onnxio.order import Wiring, describe
from checkmate.onnxio.values import Opsets, find_constants, find_values

_MAX_ROUNDS = 1000


def infer_types(
    proto: onnx.ModelProto, wirings: Sequence[Wiring], inputs: Mapping[str, TensorType]
) -> tuple[dict[str, TensorType], dict[str, np.ndarray]]:
    """Return the type of every tensor and the values of small ones.

    ``inputs`` are the bound types of the graph inputs. What the file says of other tensors is not
    believed, as it was often written for other sizes. But what onnxruntime's own ops make, of which
    nothing else is known, is believed where all inputs have fixed sizes. Raises `InputError` that
    names the tensor, its node and its unknown dimension.
    """
    opsets = Opsets(tuple(proto.opset_import))
    constants = find_constants(proto.graph)
    fixed = dict(inputs) | _find_initializer_types(proto.graph)
    fixed |= _find_stated_types(proto.graph, wirings)
    values = dict(constants)
    types: dict[str, TensorType] = {}
    for _ in range(_MAX_ROUNDS):
        inferred = _infer_once(proto, wirings, fixed, values)
        types = {name: t for name, found in inferred.items() if (t := _as_known(found)) is not None}
        n_before = len(values)
        values = find_values(wirings, types, constants, opsets)
        if _find_unknown(wirings, types) is None:
            return types, values
        if len(values) == n_before:
            break
    raise _explain(wirings, types, inferred)


def _find_initializer_types(graph: onnx.GraphProto) -> dict[str, TensorType]:
    if graph.sparse_initializer:
        name = graph.sparse_initializer[0].values.name
        raise InputError(f"sparse initializer {name!r} is not supported")
    return {t.name: TensorType(t.data_type, tuple(t.dims)) for t in graph.initializer}


def _find_stated_types(graph: onnx.GraphProto, wirings: Sequence[Wiring]) -> dict[str, TensorType]:
    """Return what the file says of tensors that only it can know of."""
    dims = (dim for item in graph.input for dim in item.type.tensor_type.shape.dim)
    if not all(dim.HasField("dim_value") for dim in dims):
        return {}
    made = {name for wiring in wirings if is_opaque(wiring.node) for name in wiring.makes}
    stated = {i.name: _as_known(i.type) for i in (*graph.value_info, *graph.output)}
    return {name: t for name, t in stated.items() if t is not None and name in made}


def _infer_once(
    proto: onnx.ModelProto,
    wirings: Sequence[Wiring],
    fixed: Mapping[str, TensorType],
    values: Mapping[str, np.ndarray],
) -> dict[str, onnx.TypeProto]:
    """Run onnx shape inference on a copy without weights in which ``values`` are constants."""
    scratch = onnx.ModelProto(ir_version=max(proto.ir_version, 4))
    scratch.opset_import.extend(proto.opset_import)
    scratch.functions.extend(proto.functions)
    graph = scratch.graph
    graph.name = "shapes"
    for name, value in values.items():
        graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    for name, known in fixed.items():
        if name not in values:
            info = onnx.helper.make_tensor_value_info(name, known.elem_type, known.shape)
            graph.input.append(info)
    for wiring in wirings:
        is_known = any(name in fixed for name in wiring.makes)
        if not is_known and any(name not in values for name in wiring.makes):
            graph.node.extend(stand_in(wiring.node))
    inferred = _infer_shapes(scratch)
    found = {info.name: info.type for info in (*inferred.graph.value_info, *graph.input)}
    for name, value in values.items():
        elem_type = onnx.helper.np_dtype_to_tensor_dtype(np.asarray(value).dtype)
        found[name] = onnx.helper.make_tensor_type_proto(elem_type, np.asarray(value).shape)
    return found


def _infer_shapes(scratch: onnx.ModelProto) -> onnx.ModelProto:
    """Return ``scratch`` with what onnx infers, without its data propagation.

    That takes every vector for a shape, and memory for each element of it; `find_values` does the
    same for small values alone.
    """
    try:
        return onnx.shape_inference.infer_shapes(scratch)
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError) as error:
        raise InputError(f"shapes do not fit together: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _as_known(found: onnx.TypeProto) -> TensorType | None:
    """Return the type when it is a tensor's and every dimension is known."""
    tensor_type = found.tensor_type
    if found.WhichOneof("value") != "tensor_type" or not tensor_type.HasField("shape"):
        return None
    if not tensor_type.elem_type or not all(d.HasField("dim_value") for d in tensor_type.shape.dim):
        return None
    return TensorType(tensor_type.elem_type, tuple(d.dim_value for d in tensor_type.shape.dim))


def _find_unknown(
    wirings: Sequence[Wiring], types: Mapping[str, TensorType]
) -> tuple[Wiring, str] | None:
    for wiring in wirings:
        for name in wiring.makes:
            if name not in types:
                return wiring, name
    return None


def _explain(
    wirings: Sequence[Wiring],
    types: Mapping[str, TensorType],
    inferred: Mapping[str, onnx.TypeProto],
) -> InputError:
    unknown = _find_unknown(wirings, types)
    assert unknown is not None
    wiring, name = unknown
    node = wiring.node
    if not onnx.defs.has(node.op_type, node.domain):
        return InputError(
            f"op {describe(node)} is not known to onnx, so the shape of tensor {name!r} is unknown"
        )
    found = inferred.get(name, onnx.TypeProto())
    if found.WhichOneof("value") not in (None, "tensor_type"):
        kind = str(found.WhichOneof("value")).removesuffix("_type")
        return InputError(f"tensor {name!r}, made by {describe(node)}, is a {kind}, not a tensor")
    if not found.tensor_type.HasField("shape"):
        return InputError(f"tensor {name!r}, made by {describe(node)}, has an unknown shape")
    shape = found.tensor_type.shape.dim
    axis = next((i for i, dim in enumerate(shape) if not dim.HasField("dim_value")), 0)
    return InputError(
        f"tensor {name!r}, made by {describe(node)}, has an unknown dimension (axis {axis}"
        f" of {len(shape)})",
        hint="its size depends on data; give the op a constant shape",
    )
