"""Partial evaluation: the values of small tensors that follow from shapes and constants.

Shapes are computed inside many graphs (Shape, Gather, Concat, Size, ReduceProd, Cast ...). Once
symbolic dimensions are bound, these values are known; onnx's own data propagation stops at some
of these ops, and with it shape inference.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

from checkmate.errors import InputError
from checkmate.onnxio.model import TensorType
from checkmate.onnxio.order import Wiring
from checkmate.onnxio.shape_rules import MICROSOFT
from checkmate.onnxio.shape_rules.training import find_broadcast_axes

MAX_ELEMENTS = 1024
"""A value is followed only while it is this small."""

_FOLLOWED_OPS = frozenset(
    {"Abs", "Add", "And", "Cast", "Ceil", "Compress", "Concat", "ConstantOfShape", "CumSum", "Div"}
    | {"Equal", "Expand", "Flatten", "Floor", "Gather", "GatherElements", "GatherND", "Greater"}
    | {"GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul", "Neg"}
    | {"NonZero", "Not", "Or", "Pad", "Pow", "Range", "Reciprocal", "ReduceMax", "ReduceMin"}
    | {"ReduceProd", "ReduceSum", "Reshape", "Round", "ScatterElements", "ScatterND", "Sign"}
    | {"Slice", "Split", "Sqrt", "Squeeze", "Sub", "Tile", "Transpose", "Unique", "Unsqueeze"}
    | {"Where", "Xor"}
)
_SHRINKING_OPS = frozenset({"Compress", "NonZero", "Unique"})
"""Their result is as small as what they read, though its shape depends on the values."""


@dataclass(frozen=True, slots=True)
class Opsets:
    """The operator sets that a model imports."""

    imports: tuple[onnx.OperatorSetIdProto, ...]

    def find(self, domain: str) -> int:
        """Return the version of ``domain``, written the short way; 0: it is not imported."""
        same = ("", "ai.onnx") if domain == "" else (domain,)
        return max((int(e.version) for e in self.imports if e.domain in same), default=0)


def find_constants(graph: onnx.GraphProto) -> dict[str, np.ndarray]:
    """Return the small initializers and Constant outputs whose value is in the file."""
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.output:
            value = _read_constant(node)
            tensors |= {} if value is None else {node.output[0]: value}
    found: dict[str, np.ndarray] = {}
    for name, tensor in tensors.items():
        if _is_small(tensor.dims) and _has_value(tensor):
            try:
                found[name] = numpy_helper.to_array(tensor)
            except (ValueError, TypeError, KeyError) as error:
                raise InputError(f"the value of tensor {name!r} is damaged: {error}") from error
    return found


def _read_constant(node: onnx.NodeProto) -> onnx.TensorProto | None:
    """Return what `_find_constant` does; raise `InputError` for numbers that are none."""
    try:
        return _find_constant(node)
    except (ValueError, TypeError, OverflowError) as error:
        name = node.output[0]
        raise InputError(f"the value of tensor {name!r} is damaged: {error}") from error


def _find_constant(node: onnx.NodeProto) -> onnx.TensorProto | None:
    """Return the value of a Constant node; None when it is not numbers."""
    for attribute in node.attribute:
        value: object = onnx.helper.get_attribute_value(attribute)
        if attribute.name == "value" and isinstance(value, onnx.TensorProto):
            return value
        if attribute.name in ("value_int", "value_ints"):
            return numpy_helper.from_array(np.array(value, dtype=np.int64))
        if attribute.name in ("value_float", "value_floats"):
            return numpy_helper.from_array(np.array(value, dtype=np.float32))
    return None


def _has_value(tensor: onnx.TensorProto) -> bool:
    is_external = tensor.data_location == onnx.TensorProto.EXTERNAL
    return not is_external and tensor.data_type not in (0, onnx.TensorProto.STRING)


def _is_small(shape: Iterable[int]) -> bool:
    return math.prod(shape) <= MAX_ELEMENTS


def find_values(
    wiring: Wiring,
    types: Mapping[str, TensorType],
    values: Mapping[str, np.ndarray],
    opsets: Opsets,
) -> dict[str, np.ndarray]:
    """Return the small values that an op makes of known shapes and ``values``.

    ``types`` are those of what the op reads, and of what it makes as far as they are known.
    """
    node = wiring.node
    if (node.domain, node.op_type) == (MICROSOFT, "BroadcastGradientArgs"):
        return _find_axes(node, values)
    if node.domain not in ("", "ai.onnx"):
        return {}
    if node.op_type in ("Shape", "Size") and node.input[0]:
        return {node.output[0]: _measure(node, types[node.input[0]].shape)}
    return _evaluate(node, values, opsets) if _is_followed(wiring, types, values) else {}


def _find_axes(node: onnx.NodeProto, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the axes that a gradient is to be summed along, where both shapes are known."""
    shapes = [values[name].tolist() for name in node.input if name in values]
    axes = find_broadcast_axes(*shapes) if len(shapes) == 2 else ()
    found = zip(node.output, axes, strict=False)
    return {name: np.array(value, dtype=np.int64) for name, value in found if name}


def _measure(node: onnx.NodeProto, shape: tuple[int, ...]) -> np.ndarray:
    if node.op_type == "Size":
        return np.array(math.prod(shape), dtype=np.int64)
    bounds = {attribute.name: attribute.i for attribute in node.attribute}
    return np.array(shape[bounds.get("start", 0) : bounds.get("end")], dtype=np.int64)


def _is_followed(
    wiring: Wiring, types: Mapping[str, TensorType], values: Mapping[str, np.ndarray]
) -> bool:
    if wiring.node.op_type not in _FOLLOWED_OPS or any(n not in values for n in wiring.reads):
        return False
    shrinks = wiring.node.op_type in _SHRINKING_OPS
    return all(_is_small(types[name].shape) if name in types else shrinks for name in wiring.makes)


def _evaluate(
    node: onnx.NodeProto, values: Mapping[str, np.ndarray], opsets: Opsets
) -> dict[str, np.ndarray]:
    """Return the outputs of ``node`` by onnx's reference implementation; none where it fails."""
    from onnx.reference import ReferenceEvaluator  # noqa: PLC0415  # slow, and not always needed

    names = [name for name in dict.fromkeys(node.input) if name]
    inputs = [
        onnx.helper.make_tensor_value_info(
            name, onnx.helper.np_dtype_to_tensor_dtype(values[name].dtype), values[name].shape
        )
        for name in names
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = onnx.helper.make_graph([node], "value", inputs, outputs)
    model = onnx.helper.make_model(graph, opset_imports=opsets.imports)
    try:
        with np.errstate(all="ignore"):
            made = ReferenceEvaluator(model).run(None, {name: values[name] for name in names})
    except Exception:  # any op of a stranger's file may fail in its own way
        return {}
    small = {o.name: np.asarray(v) for o, v in zip(outputs, made, strict=True)}
    return {name: value for name, value in small.items() if value.size <= MAX_ELEMENTS}
