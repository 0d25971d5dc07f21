"""Changes to the nodes of ONNX models that stay valid."""

from __future__ import annotations

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from checkmate.onnxio.order import sort_nodes, wire
from edits import (
    Draw,
    Edit,
    choose,
    find_floats,
    find_opset,
    find_types,
    insert_after,
    name_new,
    redirect,
)

MAX_NODES = 400
UNARY = (
    "Relu", "Tanh", "Sigmoid", "Exp", "Neg", "Abs", "Identity", "Softplus", "Elu", "Softsign",
    "LeakyRelu", "Sqrt", "Erf", "Reciprocal", "Softmax", "LogSoftmax", "Sin", "Cos", "HardSwish",
    "Mish", "Selu", "Celu", "Ceil", "HardSigmoid", "ThresholdedRelu", "Gelu", "Sign", "Floor",
)  # fmt: skip
BINARY = ("Add", "Mul", "Sub", "Div", "Max", "Min", "Mean", "Sum", "Pow", "PRelu")
COMPARING = ("Greater", "Less", "Equal", "GreaterOrEqual", "LessOrEqual")
REDUCING = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSumExp", "ReduceMin")
FAMILIES = (UNARY, BINARY, COMPARING, REDUCING)


def swap_op(proto: onnx.ModelProto, draw: Draw) -> None:
    """Make one node another op of the same signature."""
    nodes = [(n, f) for n in proto.graph.node for f in FAMILIES if n.op_type in f and not n.domain]
    if not nodes:
        return
    node, family = choose(draw, nodes)
    node.op_type = choose(draw, family)
    if family is UNARY:
        del node.attribute[:]


def add_reader(proto: onnx.ModelProto, draw: Draw) -> None:
    """Let one more node read a tensor; what it makes is an output, or nobody reads it."""
    floats = find_floats(proto)
    if not floats:
        return
    name, made = choose(draw, floats), name_new(proto, "more")
    insert_after(proto, name, [helper.make_node(choose(draw, UNARY), [name], [made])])
    if draw(st.booleans()):
        kept = find_types(proto).get(made)
        if kept is not None:
            proto.graph.output.append(helper.make_tensor_value_info(made, *kept))


def add_op_before(proto: onnx.ModelProto, draw: Draw) -> None:
    """Let some readers of a tensor read what an elementwise op makes of it."""
    floats = find_floats(proto)
    if not floats:
        return
    name, made = choose(draw, floats), name_new(proto, "between")
    if draw(st.booleans()):
        node = helper.make_node(choose(draw, UNARY), [name], [made])
    else:
        node = helper.make_node(choose(draw, BINARY[:8]), [name, name], [made])
    insert_after(proto, name, [node])
    redirect(proto, name, made, [made], draw)


def repeat_op(proto: onnx.ModelProto, draw: Draw) -> None:
    """Have a node twice, under another name, for some of its readers."""
    nodes = [node for node in proto.graph.node if len(node.output) == 1]
    if not nodes:
        return
    node = onnx.NodeProto()
    node.CopyFrom(choose(draw, nodes))
    name = node.output[0]
    node.output[0] = name_new(proto, "twin")
    if draw(st.booleans()):
        node.name = ""
    insert_after(proto, name, [node])
    redirect(proto, name, node.output[0], [], draw)


def add_views(proto: onnx.ModelProto, draw: Draw) -> None:
    """Put a chain of views behind a tensor, short or very long, for some of its readers."""
    types = find_types(proto)
    names = [n for n in find_floats(proto) if all(isinstance(d, int) for d in types[n][1])]
    if not names or len(proto.graph.node) > MAX_NODES:
        return
    name = last = choose(draw, names)
    shape = types[name][1]
    nodes: list[onnx.NodeProto] = []
    end = name_new(proto, "view")
    for left in reversed(range(choose(draw, (1, 2, 3, 8, 40)))):
        made = f"{end}_{left}" if left else end
        nodes += _make_view(proto, last, made, shape, draw)
        last = made
    insert_after(proto, name, nodes)
    redirect(proto, name, last, [m for node in nodes for m in node.output], draw)


def _make_view(
    proto: onnx.ModelProto, name: str, made: str, shape: tuple[int, ...], draw: Draw
) -> list[onnx.NodeProto]:
    """Return nodes that make ``made``, of the same ``shape``, of ``name``."""
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return [helper.make_node("Identity", [name], [made])]
    if kind == 1:
        nodes = [helper.make_node("Shape", [name], [f"{made}_s"])]
    else:
        sizes = [0 if kind == 2 else size for size in shape]
        value = numpy_helper.from_array(np.array(sizes, dtype=np.int64))
        nodes = [helper.make_node("Constant", [], [f"{made}_s"], value=value)]
    if kind == 3 and find_opset(proto) >= 13:
        value = numpy_helper.from_array(np.array([0], dtype=np.int64))
        return [
            helper.make_node("Constant", [], [f"{made}_a"], value=value),
            helper.make_node("Unsqueeze", [name, f"{made}_a"], [f"{made}_u"]),
            helper.make_node("Squeeze", [f"{made}_u", f"{made}_a"], [made]),
        ]
    return [*nodes, helper.make_node("Reshape", [name, f"{made}_s"], [made])]


def add_casts(proto: onnx.ModelProto, draw: Draw) -> None:
    """Let some readers read a tensor that was cast there and back."""
    types = find_types(proto)
    names = [name for name in find_floats(proto) if types[name][0] == 1]
    if not names:
        return
    name = choose(draw, names)
    there, back = name_new(proto, "cast"), name_new(proto, "back")
    nodes = [
        helper.make_node("Cast", [name], [there], to=choose(draw, (1, 10, 11, 16))),
        helper.make_node("Cast", [there], [back], to=1),
    ]
    insert_after(proto, name, nodes)
    redirect(proto, name, back, [there], draw)


def add_dropout(proto: onnx.ModelProto, draw: Draw) -> None:
    """Let some readers read a tensor behind a dropout, of all kinds."""
    floats = find_floats(proto)
    if not floats or find_opset(proto) < 13:
        return
    name, made = choose(draw, floats), name_new(proto, "dropped")
    ratio, mode = name_new(proto, "ratio"), name_new(proto, "mode")
    proto.graph.initializer.append(numpy_helper.from_array(np.array(0.3, dtype="f4"), ratio))
    proto.graph.initializer.append(numpy_helper.from_array(np.array(draw(st.booleans())), mode))
    outputs = [made, *choose(draw, ((), ("",), (f"{made}_mask",)))]
    inputs = [name, *choose(draw, ((), (ratio,), ("", mode), (ratio, mode)))]
    node = helper.make_node("Dropout", inputs, outputs)
    if draw(st.booleans()):
        node.attribute.append(helper.make_attribute("seed", 7))
    insert_after(proto, name, [node])
    redirect(proto, name, made, [made], draw)


def split_and_join(proto: onnx.ModelProto, draw: Draw) -> None:
    """Let some readers read a tensor that was split and joined."""
    types = find_types(proto)
    names = [name for name in find_floats(proto) if types[name][1] and find_opset(proto) >= 13]
    names = [name for name in names if isinstance(types[name][1][0], int) and types[name][1][0] > 1]
    if not names:
        return
    name, made = choose(draw, names), name_new(proto, "joined")
    size = types[name][1][0]
    parts = [f"{made}_{i}" for i in range(2)]
    sizes = name_new(proto, "sizes")
    value = np.array([size - 1, 1], dtype=np.int64)
    proto.graph.initializer.append(numpy_helper.from_array(value, sizes))
    nodes = [
        helper.make_node("Split", [name, sizes], parts, axis=0),
        helper.make_node("Concat", parts, [made], axis=0),
    ]
    insert_after(proto, name, nodes)
    redirect(proto, name, made, parts, draw)


def name_more_outputs(proto: onnx.ModelProto, draw: Draw) -> None:
    """Add optional inputs and outputs to a node, without names or unread."""
    schemas = []
    for node in proto.graph.node:
        if not node.domain and onnx.defs.has(node.op_type, find_opset(proto), ""):
            schemas.append((node, onnx.defs.get_schema(node.op_type, find_opset(proto), "")))
    growing = [n for n, schema in schemas if len(n.output) < min(schema.max_output, 3)]
    taking = [n for n, schema in schemas if len(n.input) < min(schema.max_input, 6)]
    if growing and draw(st.booleans()):
        node = choose(draw, growing)
        node.output.append(choose(draw, ("", name_new(proto, "unread"))))
    elif taking:
        node = choose(draw, taking)
        is_list = onnx.defs.get_schema(node.op_type, find_opset(proto), "").max_input > 1000
        node.input.append(node.input[0] if is_list else "")


def change_number(proto: onnx.ModelProto, draw: Draw) -> None:
    """Change a number among the attributes a little."""
    attributes = [(n, a) for n in proto.graph.node for a in n.attribute if a.type in (1, 2, 7)]
    if not attributes:
        return
    _, attribute = choose(draw, attributes)
    step = choose(draw, (-1, 1))
    if attribute.type == onnx.AttributeProto.INT:
        attribute.i = (attribute.i + step) if attribute.i not in (0, 1) else 1 - attribute.i
    elif attribute.type == onnx.AttributeProto.FLOAT:
        attribute.f = attribute.f * 0.5 + step
    elif attribute.ints:
        attribute.ints[draw(st.integers(0, len(attribute.ints) - 1))] += step


def shuffle_nodes(proto: onnx.ModelProto, draw: Draw) -> None:
    """Put the nodes in another order: topological, or any."""
    nodes = list(proto.graph.node)
    draw(st.randoms(use_true_random=False)).shuffle(nodes)
    if draw(st.booleans()):
        nodes = [wiring.node for wiring in sort_nodes([wire(node) for node in nodes])]
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)


OP_EDITS: tuple[Edit, ...] = (
    swap_op, swap_op, swap_op, add_reader, add_op_before, repeat_op, add_views, add_casts,
    add_dropout, split_and_join, name_more_outputs, change_number, shuffle_nodes,
)  # fmt: skip
