"""Sequences and optionals whose parts are known, replaced by the tensors in them.

A sequence that is put together and taken apart within the graph, at constant places, is a way of
naming tensors. Without it each tensor has a size and a life of its own, and onnxruntime copies
none of them into the sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

from checkmate.onnxio.order import name_weights, sort_nodes, wire
from checkmate.onnxio.values import find_constants

_FIRST_OPSET_OF_SPLIT_INPUTS = 13

_Parts = tuple[str, ...]


def lower_sequences(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return ``proto`` without sequences and optionals where all of them are known.

    Where one is not, shape inference refuses it by name, so that ``proto`` is returned as it is.
    """
    if not any(
        node.op_type in _LOWERINGS and node.op_type != "Identity" for node in proto.graph.node
    ):
        return proto
    lowering = _Lowering(proto)
    wirings = sort_nodes([wire(node) for node in proto.graph.node])
    nodes = [new for wiring in wirings for new in lowering.lower(wiring.node)]
    read = {name for node in nodes for name in wire(node).reads}
    read.update(output.name for output in proto.graph.output)
    if not read.isdisjoint(lowering.parts):
        return proto
    lowered = onnx.ModelProto()
    lowered.CopyFrom(proto)
    del lowered.graph.node[:]
    lowered.graph.node.extend(nodes)
    lowered.graph.initializer.extend(lowering.constants)
    return lowered


class _Lowering:
    """What each sequence and each optional holds, as far as the nodes have been seen."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        self.parts: dict[str, _Parts] = {}
        self.constants: list[onnx.TensorProto] = []
        self.values = find_constants(proto.graph)
        self.is_old = all(
            entry.version < _FIRST_OPSET_OF_SPLIT_INPUTS
            for entry in proto.opset_import
            if entry.domain in ("", "ai.onnx")
        )
        self._taken = {*name_weights(proto.graph), *(item.name for item in proto.graph.input)}
        self._taken.update(name for node in proto.graph.node for name in node.output)

    def lower(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """Return what takes the place of ``node``: itself, where it is as good as any."""
        lower = _LOWERINGS.get(node.op_type) if node.domain in ("", "ai.onnx") else None
        made = None if lower is None else lower(self, node)
        return [node] if made is None else made

    def find_index(self, node: onnx.NodeProto, position: int, default: int) -> int | None:
        """Return a place that ``node`` reads; None: it is not constant."""
        if len(node.input) <= position or not node.input[position]:
            return default
        value = self.values.get(node.input[position])
        return None if value is None else int(value.reshape(-1)[0])

    def reserve(self, name: str) -> str:
        """Return a name like ``name`` that nothing has."""
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def add_constant(self, name: str, value: np.ndarray) -> None:
        """Make ``name`` an initializer."""
        self.values[name] = value
        self.constants.append(numpy_helper.from_array(value, name))


_Lowered = list[onnx.NodeProto] | None


def _construct(lowering: _Lowering, node: onnx.NodeProto) -> _Lowered:
    lowering.parts[node.output[0]] = tuple(name for name in node.input if name)
    return []


def _pass_on(lowering: _Lowering, node: onnx.NodeProto) -> _Lowered:
    if node.input[0] not in lowering.parts:
        return None
    lowering.parts[node.output[0]] = lowering.parts[node.input[0]]
    return []


def _insert(lowering: _Lowering, node: onnx.NodeProto) -> _Lowered:
    parts = lowering.parts.get(node.input[0])
    place = None if parts is None else lowering.find_index(node, 2, len(parts))
    if parts is None or place is None or not -len(parts) <= place <= len(parts):
        return None
    made = list(parts)
    made.insert(place, node.input[1])
    lowering.parts[node.output[0]] = tuple(made)
    return []


def _erase(lowering: _Lowering, node: onnx.NodeProto) -> _Lowered:
    parts = lowering.parts.get(node.input[0])
    place = lowering.find_index(node, 1, -1)
    if parts is None or place is None or not -len(parts) <= place < len(parts):
        return None
    made = list(parts)
    del made[place]
    lowering.parts[node.output[0]] = tuple(made)
    return []


def _take(lowering: _Lowering, node: onnx.NodeProto) -> _Lowered:
    """Return an Identity of the part that SequenceAt or OptionalGetElement takes."""
    parts = lowering.parts.get(node.input[0])
    place = lowering.find_index(node, 1, 0)
    if parts is None or place is None or not -len(parts) <= place < len(parts):
        return None
    return [helper.make_node("Identity", [parts[place]], node.output, name=node.name)]


def _count(lowering: _Lowering, node: onnx.NodeProto) -> _Lowered:
    if node.input[0] not in lowering.parts:
        return None
    lowering.add_constant(node.output[0], np.array(len(lowering.parts[node.input[0]])))
    return []


def _has_element(lowering: _Lowering, node: onnx.NodeProto) -> _Lowered:
    if not node.input or node.input[0] not in lowering.parts:
        return None
    lowering.add_constant(node.output[0], np.array(bool(lowering.parts[node.input[0]])))
    return []


def _join(lowering: _Lowering, node: onnx.NodeProto) -> _Lowered:
    parts = lowering.parts.get(node.input[0])
    attributes = {attribute.name: attribute.i for attribute in node.attribute}
    axis = attributes.get("axis", 0)
    if not parts or (lowering.is_old and attributes.get("new_axis")):
        return None
    nodes: list[onnx.NodeProto] = []
    if attributes.get("new_axis"):
        axes = lowering.reserve(f"{node.output[0]}_axes")
        lowering.add_constant(axes, np.array([axis]))
        wide = [lowering.reserve(f"{node.output[0]}_{i}") for i in range(len(parts))]
        pairs = zip(parts, wide, strict=True)
        nodes = [helper.make_node("Unsqueeze", [part, axes], [name]) for part, name in pairs]
        parts = tuple(wide)
    return [*nodes, helper.make_node("Concat", parts, node.output, name=node.name, axis=axis)]


def _split(lowering: _Lowering, node: onnx.NodeProto) -> _Lowered:
    """Return a Split; only where the lengths of the parts are a constant vector."""
    lengths = lowering.values.get(node.input[1]) if len(node.input) > 1 else None
    if lengths is None or lengths.ndim != 1 or lowering.is_old:
        return None
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
    parts = [lowering.reserve(f"{node.output[0]}_{i}") for i in range(len(lengths))]
    lowering.parts[node.output[0]] = tuple(parts)
    return [helper.make_node("Split", node.input, parts, name=node.name, axis=axis)]


_LOWERINGS: Mapping[str, Callable[[_Lowering, onnx.NodeProto], _Lowered]] = {
    "ConcatFromSequence": _join,
    "Identity": _pass_on,
    "Optional": _construct,
    "OptionalGetElement": _take,
    "OptionalHasElement": _has_element,
    "SequenceAt": _take,
    "SequenceConstruct": _construct,
    "SequenceEmpty": _construct,
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": _count,
    "SplitToSequence": _split,
}
"""Per operator: what takes its place; None: its sequence is not known."""
