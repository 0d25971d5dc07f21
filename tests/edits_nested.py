"""Changes that put nodes of ONNX models into functions and bodies, and the models so edited."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from checkmate.onnxio.dims import find_dims
from edits import (
    Draw,
    Edit,
    choose,
    find_floats,
    find_types,
    insert_after,
    name_new,
    redirect,
)
from edits_ends import END_EDITS
from edits_ops import OP_EDITS, UNARY

DOMAIN = "local"


def wrap_in_function(proto: onnx.ModelProto, draw: Draw) -> None:
    """Put one node, or two in a row, into a function of the model."""
    graph = proto.graph
    place = draw(st.integers(0, len(graph.node) - 1))
    count = choose(draw, (1, 2))
    nodes = [node for node in graph.node[place : place + count] if node.op_type != "Constant"]
    if not nodes or any(a.HasField("g") for node in nodes for a in node.attribute):
        return
    made = [name for node in nodes for name in node.output if name]
    read = dict.fromkeys(n for node in nodes for n in node.input if n and n not in made)
    name = f"f{len(proto.functions)}"
    opsets = [entry for entry in proto.opset_import if entry.domain != DOMAIN]
    function = helper.make_function(DOMAIN, name, list(read), made, nodes, opsets)
    if all(entry.domain != DOMAIN for entry in proto.opset_import):
        proto.opset_import.add(domain=DOMAIN, version=1)
    proto.functions.append(function)
    call = helper.make_node(name, list(read), made, domain=DOMAIN)
    for node in nodes:
        graph.node.remove(node)
    graph.node.insert(place, call)
    proto.ir_version = max(proto.ir_version, 8)


def wrap_in_if(proto: onnx.ModelProto, draw: Draw) -> None:
    """Put a node into both branches of an If, which capture what it reads."""
    graph, types = proto.graph, find_types(proto)
    places = [
        i for i, node in enumerate(graph.node) if len(node.output) == 1 and node.output[0] in types
    ]
    if not places:
        return
    place = choose(draw, places)
    node = graph.node[place]
    name = node.output[0]
    branches = {}
    for key in ("then_branch", "else_branch"):
        inner = onnx.NodeProto()
        inner.CopyFrom(node)
        inner.name = ""
        # Of names within bodies too a rewritten model might want one.
        inner.output[0] = choose(draw, (f"{key}_of_{name}", f"{key}_of_{name}__recompute1"))
        output = helper.make_tensor_value_info(inner.output[0], types[name][0], None)
        branches[key] = helper.make_graph([inner], key, [], [output])
    condition = _add_condition(proto, draw)
    graph.node[place].CopyFrom(helper.make_node("If", [condition], [name], **branches))


def _add_condition(proto: onnx.ModelProto, draw: Draw) -> str:
    """Return a new bool, given by the caller or known."""
    name = name_new(proto, "condition")
    if draw(st.booleans()):
        proto.graph.input.append(helper.make_tensor_value_info(name, 9, ()))
    else:
        value = numpy_helper.from_array(np.array(draw(st.booleans())), name)
        proto.graph.initializer.append(value)
    return name


def add_loop(proto: onnx.ModelProto, draw: Draw) -> None:
    """Let some readers of a tensor read what a Loop makes of it, in a few turns."""
    types, floats = find_types(proto), find_floats(proto)
    if not floats:
        return
    name, made = choose(draw, floats), name_new(proto, "looped")
    elem_type, shape = types[name]
    goes_on, count = name_new(proto, "goes_on"), name_new(proto, "count")
    turns = np.array(draw(st.integers(0, 3)), dtype=np.int64)
    proto.graph.initializer.append(numpy_helper.from_array(np.array(True), goes_on))
    proto.graph.initializer.append(numpy_helper.from_array(turns, count))
    item = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Identity", [f"{made}_c"], [f"{made}_d"]),
            helper.make_node(choose(draw, UNARY), [f"{made}_v"], [f"{made}_t"]),
            # Captures what it also carries.
            helper.make_node("Add", [f"{made}_t", name], [f"{made}_u"]),
        ],
        "body",
        [item(f"{made}_i", 7, ()), item(f"{made}_c", 9, ()), item(f"{made}_v", elem_type, shape)],
        [item(f"{made}_d", 9, ()), item(f"{made}_u", elem_type, shape)],
    )
    inputs = [count, choose(draw, (goes_on, "")), name]
    insert_after(proto, name, [helper.make_node("Loop", inputs, [made], body=body)])
    redirect(proto, name, made, [made], draw)


NESTED_EDITS: tuple[Edit, ...] = (wrap_in_function, wrap_in_if, add_loop)
EDITS: tuple[Edit, ...] = (*OP_EDITS, *END_EDITS, *NESTED_EDITS)


@st.composite
def edited_models(draw: Draw, seeds: Sequence[bytes], max_edits: int = 6) -> onnx.ModelProto:
    """Return one of the models ``seeds`` after some edits."""
    proto = onnx.ModelProto.FromString(choose(draw, seeds))
    for edit in draw(st.lists(st.sampled_from(EDITS), min_size=1, max_size=max_edits)):
        edit(proto, draw)
    return proto


def bind_dims(proto: onnx.ModelProto, size: int) -> dict[str, int]:
    """Return every symbolic dimension of the inputs, bound to ``size``."""
    return dict.fromkeys(find_dims(proto.graph), size)
