"""Ways to damage a model: by its structure and by its bytes. Used by `bench/fuzz.py`."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import onnx
from google.protobuf.message import DecodeError, Message

ODD_NUMBERS = (0, 1, -1, 2, 7, 127, 2**31 - 1, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63))
ODD_TEXTS = ("", "x", "a" * 5000, "\x00", "\x1b[31m", "../../etc/passwd", "naïve", "{0}", "%s")
OP_TYPES = (
    "Identity", "Dropout", "If", "Loop", "Scan", "Reshape", "Constant", "Shape", "Size", "Cast",
    "ConstantOfShape", "Split", "SequenceConstruct", "Optional", "RandomNormal", "Expand", "Range",
    "BatchNormalization", "Einsum", "Resize", "Tile", "NonZero", "TopK", "GRU", "Conv", "Gather",
)  # fmt: skip
_MAX_GROWTH = 400_000
"""Bytes that a mutation may add."""

Mutation = Callable[[onnx.ModelProto, random.Random], None]


def mutate_structure(content: bytes, chance: random.Random) -> bytes:
    """Return a model with up to four faults that still parses."""
    proto = onnx.ModelProto.FromString(content)
    for _ in range(chance.randint(1, 4)):
        try:
            chance.choice(MUTATIONS)(proto, chance)
        except DecodeError:
            # Some copy by writing and reading, which too deep a tower does not survive.
            return content
        content = proto.SerializeToString()
    return content


def mutate_bytes(content: bytes, chance: random.Random) -> bytes:
    """Return ``content`` with bytes flipped, cut, doubled or put in."""
    changed = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 4, 16))):
        at = chance.randrange(max(1, len(changed)))
        kind = chance.randrange(5)
        if kind == 0 and changed:
            changed[at % len(changed)] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del changed[at : at + chance.choice((1, 4, 100, 10_000))]
        elif kind == 2:
            changed[at:at] = changed[at : at + chance.choice((1, 8, 1000))]
        elif kind == 3:
            changed[at:at] = chance.randbytes(chance.choice((1, 3, 20)))
        elif changed:
            changed[at % len(changed)] = chance.choice((0, 0x7F, 0x80, 0xFF))
    return bytes(changed)


def change_any_field(proto: onnx.ModelProto, chance: random.Random) -> None:
    """Set, clear or repeat one field somewhere in the model."""
    message = chance.choice(list(_walk(proto.graph))[:20_000])
    fields = message.ListFields()
    if not fields:
        return
    field, value = chance.choice(fields)
    if chance.random() < 0.2:
        message.ClearField(field.name)
    elif field.is_repeated:
        _change_items(value, chance)
    elif field.enum_type is not None:
        setattr(message, field.name, chance.choice(field.enum_type.values).number)
    elif field.message_type is None:
        setattr(message, field.name, _change_value(value, chance))


def change_op_type(proto: onnx.ModelProto, chance: random.Random) -> None:
    """Make one node another op."""
    if proto.graph.node:
        node = chance.choice(proto.graph.node)
        node.op_type = chance.choice((*OP_TYPES, "NoSuchOp"))
        if chance.random() < 0.2:
            node.domain = chance.choice(("com.microsoft", "ai.onnx", "ai.onnx.ml", "local"))


def rewire(proto: onnx.ModelProto, chance: random.Random) -> None:
    """Let one node read or make another tensor, which may close a cycle."""
    names = _list_names(proto.graph)
    if not proto.graph.node or not names:
        return
    node = chance.choice(proto.graph.node)
    side = chance.choice((node.input, node.output))
    if side:
        side[chance.randrange(len(side))] = chance.choice((*names, "", "nowhere"))


def shuffle_nodes(proto: onnx.ModelProto, chance: random.Random) -> None:
    """Put the nodes in any order."""
    nodes = list(proto.graph.node)
    chance.shuffle(nodes)
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)


def drop_item(proto: onnx.ModelProto, chance: random.Random) -> None:
    """Leave out a node, an input, an output, an initializer or a type."""
    items = chance.choice(_list_parts(proto))
    if items:
        del items[chance.randrange(len(items))]


def repeat_item(proto: onnx.ModelProto, chance: random.Random) -> None:
    """Have a node, an input, an output, an initializer or a type twice."""
    items = chance.choice(_list_parts(proto))
    if items:
        items.append(chance.choice(items))


def change_opset(proto: onnx.ModelProto, chance: random.Random) -> None:
    """Import another version of the operators, or none, or IR of another time."""
    if chance.random() < 0.5:
        proto.ir_version = chance.choice((0, 3, 4, 8, 10, 13, 99))
    elif proto.opset_import:
        opset = chance.choice(proto.opset_import)
        opset.version = chance.choice((0, 1, 6, 11, 13, 17, 21, 25, 999, -1))


def change_shape(proto: onnx.ModelProto, chance: random.Random) -> None:
    """Give a dimension an odd size, a name or nothing; or a tensor an odd type."""
    values = [*proto.graph.input, *proto.graph.output, *proto.graph.value_info]
    if not values:
        return
    tensor = chance.choice(values).type.tensor_type
    if chance.random() < 0.2:
        tensor.elem_type = chance.choice((0, 1, 7, 8, 10, 11, 16, 17, 21, 22, 23, 999))
    elif tensor.shape.dim:
        dim = chance.choice(tensor.shape.dim)
        if chance.random() < 0.3:
            dim.dim_param = chance.choice(("N", "M", "", "N*2"))
        else:
            dim.dim_value = chance.choice(ODD_NUMBERS)


def move_weights_out(proto: onnx.ModelProto, chance: random.Random) -> None:
    """Say that an initializer lies in another file, here or where it must not."""
    if proto.graph.initializer:
        tensor = chance.choice(proto.graph.initializer)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        places = ("w.bin", "/etc/passwd", "../w.bin", "", "a/b", "C:\\w", "w.bin\x00")
        tensor.external_data.add(key="location", value=chance.choice(places))
        if chance.random() < 0.5:
            tensor.external_data.add(key="length", value=str(chance.choice(ODD_NUMBERS)))


def nest(proto: onnx.ModelProto, chance: random.Random) -> None:
    """Put the whole graph, or a deep tower of graphs, into an attribute."""
    if not proto.graph.node or proto.ByteSize() > _MAX_GROWTH:
        return
    graph = onnx.GraphProto()
    graph.CopyFrom(proto.graph)
    for _ in range(chance.choice((0, 0, 1, 60))):
        outer = onnx.GraphProto(name="outer")
        outer.node.add(op_type="If", input=["c"], output=["o"]).attribute.add(
            name="then_branch", type=5
        ).g.CopyFrom(graph)
        graph = outer
        if graph.ByteSize() > _MAX_GROWTH:
            break
    node = chance.choice(proto.graph.node)
    node.attribute.add(name=chance.choice(("body", "then_branch")), type=5).g.CopyFrom(graph)


MUTATIONS: tuple[Mutation, ...] = (
    change_any_field, change_any_field, change_any_field, change_op_type, rewire, shuffle_nodes,
    drop_item, repeat_item, change_opset, change_shape, move_weights_out, nest,
)  # fmt: skip


def _walk(message: Message) -> Iterator[Message]:
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for item in value if field.is_repeated else (value,):
                yield from _walk(item)


def _list_names(graph: onnx.GraphProto) -> list[str]:
    made = [name for node in graph.node for name in node.output]
    return made + [item.name for item in (*graph.input, *graph.initializer)]


def _list_parts(proto: onnx.ModelProto) -> list[list[Message]]:
    graph = proto.graph
    return [graph.node, graph.input, graph.output, graph.initializer, graph.value_info]


def _change_items(items: list[object], chance: random.Random) -> None:
    """Change, drop or double an item of a repeated field of plain values or messages."""
    at = chance.randrange(len(items))
    kind = chance.randrange(3)
    if kind == 0:
        del items[at]
    elif kind == 1:
        items.append(items[at])
    elif not isinstance(items[at], Message):
        items[at] = _change_value(items[at], chance)


def _change_value(value: object, chance: random.Random) -> object:
    if isinstance(value, str):
        return chance.choice(ODD_TEXTS)
    if isinstance(value, bytes):
        return mutate_bytes(value[:10_000], chance)
    if isinstance(value, float):
        return chance.choice((0.0, -1.0, 1e30, float("nan"), float("inf")))
    return chance.choice([n for n in ODD_NUMBERS if -(2**31) <= n < 2**31])
