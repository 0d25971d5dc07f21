"""What a model says of itself, whether or not its symbolic dimensions are bound."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import onnx

from checkmate.onnxio.dims import find_dims
from checkmate.onnxio.effects import find_pins
from checkmate.onnxio.model import Model, TensorType, find_weight_types
from checkmate.onnxio.order import Wiring, name_weights, sort_nodes, wire
from checkmate.onnxio.phases import FLOATS, find_backward, find_loss
from checkmate.onnxio.read import name_ops
from checkmate.onnxio.sizes import count_nbytes
from checkmate.onnxio.values import find_constants
from checkmate.onnxio.views import find_source

_UPDATES = ("optimizer update", "statistics update")
"""Reasons of `find_pins` for ops that are in no pass."""

GivenKind = Literal["parameter", "state", "data", "constant"]
"""What a resident tensor is for, as far as its use tells."""

_UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Given:
    """A tensor that no op makes: an input, an initializer or a constant."""

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None
    """Symbolic dimensions by name; None for one without a name, and for an unknown rank."""
    kind: GivenKind
    nbytes: int | None
    """None: its dimensions are not known."""


@dataclass(frozen=True, slots=True)
class Outline:
    """A model without sizes."""

    ir_version: int
    opsets: Mapping[str, int]
    producer: str
    op_types: Mapping[str, int]
    """How many ops there are of each operator, most first."""
    dims: Mapping[str, Sequence[str]]
    """Per symbolic dimension, the inputs that have it."""
    given: tuple[Given, ...]
    loss: str | None
    n_ops: int
    n_backward: int
    pins: tuple[tuple[str, str], ...]
    """Ops that may run only once, and why."""
    view_types: Mapping[str, int]
    """How many views there are of each operator, most first."""


@dataclass(frozen=True, slots=True)
class _Facts:
    """What the kinds of given tensors follow from."""

    graph: onnx.GraphProto
    wirings: tuple[Wiring, ...]
    types: Mapping[str, TensorType]
    """With -1 for unknown dimensions; unknown ranks are left out."""
    backward: tuple[bool, ...]
    pins: tuple[str | None, ...]
    symbolic: frozenset[str]
    """Inputs with symbolic dimensions."""


def outline_model(model: Model, loss: str | None) -> Outline:
    """Return the outline of a model whose dimensions are bound."""
    wirings = tuple(wire(node) for node in model.nodes)
    outline = _outline(model.proto, wirings, model.types, model.values, loss)
    free = {op.name for op in model.graph.ops if op.recomputable}
    pins = tuple((name, pin) for name, pin in outline.pins if name not in free)
    return replace(outline, pins=pins)


def outline_file(proto: onnx.ModelProto, loss: str | None) -> Outline:
    """Return the outline of a model of which only the file is known.

    Raises `GraphError` for a cycle, `InputError` when ``loss`` is not an output.
    """
    wirings = sort_nodes([wire(node) for node in proto.graph.node])
    ops = tuple(wiring for wiring in wirings if wiring.node.op_type != "Constant")
    types = _find_stated(proto.graph)
    return _outline(proto, ops, types, find_constants(proto.graph), loss)


def _outline(
    proto: onnx.ModelProto,
    wirings: tuple[Wiring, ...],
    types: Mapping[str, TensorType],
    values: Mapping[str, np.ndarray],
    asked: str | None,
) -> Outline:
    graph = proto.graph
    outputs = tuple(dict.fromkeys(output.name for output in graph.output))
    nowhere = TensorType(onnx.TensorProto.UNDEFINED, (_UNKNOWN,))
    loss = find_loss(outputs, {name: types.get(name, nowhere) for name in outputs}, asked)
    backward, pins = find_backward(wirings, loss), find_pins(wirings, values)
    names = tuple(name_ops(wirings))
    dims = find_dims(graph)
    symbolic = frozenset(name for having in dims.values() for name in having)
    views = (w.node.op_type for w in wirings if find_source(w.node, outputs) is not None)
    return Outline(
        proto.ir_version,
        {entry.domain or "ai.onnx": entry.version for entry in proto.opset_import},
        " ".join(filter(None, (proto.producer_name, proto.producer_version))),
        _count(_name_type(wiring.node) for wiring in wirings),
        dims,
        tuple(_list_given(_Facts(graph, wirings, types, backward, pins, symbolic))),
        loss,
        len(wirings),
        sum(backward),
        tuple((name, pin) for name, pin in zip(names, pins, strict=True) if pin is not None),
        _count(views),
    )


def _count(names: Iterator[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items(), key=lambda item: (-item[1], item[0])))


def _name_type(node: onnx.NodeProto) -> str:
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"


def _find_stated(graph: onnx.GraphProto) -> dict[str, TensorType]:
    """Return the types that the file states, with -1 for unknown dimensions."""
    found: dict[str, TensorType] = {}
    for item in (*graph.value_info, *graph.output, *graph.input):
        tensor = item.type.tensor_type
        if tensor.HasField("shape"):
            shape = (d.dim_value if d.HasField("dim_value") else _UNKNOWN for d in tensor.shape.dim)
            found[item.name] = TensorType(tensor.elem_type, tuple(shape))
    return found | find_weight_types(graph)


def _list_given(facts: _Facts) -> Iterator[Given]:
    """Yield inputs in file order, then what else is in the file and is read or returned."""
    graph, uses, types = facts.graph, _find_uses(facts), facts.types
    used = {name for wiring in facts.wirings for name in wiring.reads}
    used.update(output.name for output in graph.output)
    weights = dict.fromkeys(name_weights(graph))
    inputs = {item.name: item for item in graph.input}
    constants = [node.output[0] for node in graph.node if node.op_type == "Constant"]
    for name in dict.fromkeys((*inputs, *(n for n in (*weights, *constants) if n in used))):
        known = types.get(name)
        shape = None if known is None else known.shape
        is_input = name in inputs and name not in weights
        kind = _find_kind(facts, uses, name, is_input=is_input)
        elem_type = onnx.TensorProto.UNDEFINED if known is None else known.elem_type
        shown = _name_shape(inputs[name]) if name in inputs else shape
        yield Given(name, _name_dtype(elem_type), shown, kind, _count_known_nbytes(name, known))


def _count_known_nbytes(name: str, known: TensorType | None) -> int | None:
    if known is None or _UNKNOWN in known.shape:
        return None
    return count_nbytes(name, known)


def _name_shape(item: onnx.ValueInfoProto) -> tuple[int | str | None, ...] | None:
    tensor = item.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return tuple(
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None
        for dim in tensor.shape.dim
    )


def _name_dtype(elem_type: int) -> str:
    known = onnx.TensorProto.DataType.items()
    return next((name.lower() for name, number in known if number == elem_type), "undefined")


@dataclass(frozen=True, slots=True)
class _Uses:
    """Which tensors are read where, and which shapes gradients have."""

    anywhere: frozenset[str]
    """Read by some op."""
    forward: frozenset[str]
    """Read by an op that is neither backward nor an update."""
    update: frozenset[str]
    """Read by an update of the optimizer or of statistics."""
    shapes: frozenset[tuple[int, ...]]
    """Of what backward ops hand to the caller, and of what updates read; scalars left out."""


def _find_uses(facts: _Facts) -> _Uses:
    forward: set[str] = set()
    update: set[str] = set()
    made: set[str] = set()
    for wiring, is_backward, pin in zip(facts.wirings, facts.backward, facts.pins, strict=True):
        if pin in _UPDATES:
            update.update(wiring.reads)
        elif not is_backward:
            forward.update(wiring.reads)
        made.update(wiring.makes if is_backward else ())
    handed = made.intersection(output.name for output in facts.graph.output) | update
    shapes = (facts.types[name].shape for name in handed if name in facts.types)
    fixed = frozenset(shape for shape in shapes if shape and _UNKNOWN not in shape)
    anywhere = frozenset(name for wiring in facts.wirings for name in wiring.reads)
    return _Uses(anywhere, frozenset(forward), frozenset(update), fixed)


def _find_kind(facts: _Facts, uses: _Uses, name: str, *, is_input: bool) -> GivenKind:
    """Return what a resident tensor is for.

    A parameter is a tensor of floats that the forward pass reads, or nothing does, without
    symbolic dimensions, and with the shape of something that the backward pass hands to the
    caller or that an update reads: its gradient, its new value or its state. Or it is an
    initializer of several floats that the forward pass reads. What other ops read is state where
    an update reads it, or where it has such a shape.
    """
    known = facts.types.get(name)
    shape = known.shape if known is not None and known.elem_type in FLOATS else ()
    has_gradient = shape in uses.shapes and name not in facts.symbolic
    is_weight = not is_input and math.prod(shape) > 1
    is_forward = name in uses.forward or name not in uses.anywhere
    if is_forward and (has_gradient or is_weight):
        return "parameter"
    if not is_forward and (has_gradient or name in uses.update):
        return "state"
    return "data" if is_input else "constant"
