"""What a rule sees of an op, and the rules that many operators share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx

from checkmate.errors import InputError
from checkmate.onnxio.model import TensorType
from checkmate.onnxio.order import describe


@dataclass(frozen=True, slots=True)
class Call:
    """One op and what is known before it runs."""

    node: onnx.NodeProto
    types: Mapping[str, TensorType]
    values: Mapping[str, np.ndarray]
    makers: Mapping[str, onnx.NodeProto]
    """Per tensor that an op made: that op."""

    def has(self, position: int) -> bool:
        """Return whether the op reads something there."""
        return position < len(self.node.input) and bool(self.node.input[position])

    def read(self, position: int) -> TensorType:
        """Return the type of an input; raise `InputError` when the op has none there."""
        if not self.has(position):
            raise InputError(f"op {describe(self.node)} has no input {position}, which it needs")
        return self.types[self.node.input[position]]

    def evaluate(self, position: int) -> tuple[int, ...]:
        """Return the integers of an input; raise `InputError` when they are not known."""
        self.read(position)
        name = self.node.input[position]
        if name not in self.values:
            raise InputError(
                f"what op {describe(self.node)} makes depends on the value of {name!r}, its input"
                f" {position}, which is not constant"
            )
        return tuple(int(number) for number in self.values[name].reshape(-1))

    def integer(self, name: str, default: int = 0) -> int:
        """Return an attribute."""
        return next((int(a.i) for a in self.node.attribute if a.name == name), default)

    def integers(self, name: str) -> tuple[int, ...]:
        """Return an attribute; empty: the op does not have it."""
        found = (tuple(map(int, a.ints)) for a in self.node.attribute if a.name == name)
        return next(found, ())

    def text(self, name: str, default: str) -> str:
        """Return an attribute."""
        found = (a.s.decode(errors="replace") for a in self.node.attribute if a.name == name)
        return next(found, default)


Made = tuple[TensorType | None, ...]
"""Per output position; None: unknown. Outputs that the op leaves out do not matter."""

Rule = Callable[[Call], Made]


def like(*positions: int) -> Rule:
    """Return the rule of an op whose outputs are like these inputs; one it lacks: unknown."""
    return lambda call: tuple(call.read(p) if call.has(p) else None for p in positions)


def with_mask(elem_type: int) -> Rule:
    """Return the rule of an op that makes its first input's like, and a mask of that shape."""
    return lambda call: (call.read(0), TensorType(elem_type, call.read(0).shape))


def flag(*shape: int) -> Rule:
    """Return the rule of an op that makes a boolean of this shape."""
    return lambda _: (TensorType(onnx.TensorProto.BOOL, shape),)


def infer_as(op_type: str, *, opset: int = 18, n_inputs: int | None = None) -> Rule:
    """Return the rule of an op that makes what a standard operator makes of the same inputs.

    ``n_inputs``: only so many are read; attributes that the operator does not have are dropped.
    """

    def rule(call: Call) -> Made:
        schema = onnx.defs.get_schema(op_type, opset)
        node = onnx.NodeProto(op_type=op_type)
        node.input.extend(call.node.input[:n_inputs])
        node.output.append("made")
        node.attribute.extend(a for a in call.node.attribute if a.name in schema.attributes)
        types = {
            name: onnx.helper.make_tensor_type_proto(
                call.types[name].elem_type, call.types[name].shape
            )
            for name in node.input
            if name
        }
        data = {
            name: onnx.numpy_helper.from_array(call.values[name])
            for name in node.input
            if name in call.values
        }
        opsets = [onnx.helper.make_opsetid("", opset)]
        found = onnx.shape_inference.infer_node_outputs(
            schema, node, types, data, opset_imports=opsets
        )
        return (as_known(found["made"]),) if "made" in found else ()

    return rule


def as_known(found: onnx.TypeProto) -> TensorType | None:
    """Return the type when it is a tensor's and every dimension is known."""
    tensor_type = found.tensor_type
    if found.WhichOneof("value") != "tensor_type" or not tensor_type.HasField("shape"):
        return None
    if not tensor_type.elem_type or not all(d.HasField("dim_value") for d in tensor_type.shape.dim):
        return None
    return TensorType(tensor_type.elem_type, tuple(d.dim_value for d in tensor_type.shape.dim))
