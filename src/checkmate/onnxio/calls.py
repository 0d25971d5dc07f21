"""Calls of model-local functions, replaced by their bodies as onnxruntime replaces them.

onnx's own inliner renames and binds; what it leaves out is seen to here, with the figures of
onnxruntime 1.31.1: attributes that a call leaves out have their defaults; a body is read under the
operator sets of the model, whatever its own imports say; functions of one name that differ in their
overload are different ones; and an operator that onnxruntime itself has is not replaced by a
function of its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx
import onnx.inliner

from checkmate.errors import GraphError, InputError
from checkmate.onnxio.sanity import check_structure, walk_graphs
from checkmate.onnxio.shape_rules import MICROSOFT, find_rule, is_training_only

MAX_NODES = 500_000
"""Functions that call functions can stand for more nodes than fit in any memory."""

_Key = tuple[str, str]
_Functions = Mapping[_Key, onnx.FunctionProto]


def inline_calls(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return ``proto`` with every call of a model-local function replaced by its body.

    Raises `GraphError` for recursive functions, `InputError` for what grows beyond `MAX_NODES` or
    cannot be inlined.
    """
    if not proto.functions:
        return proto
    inlined = onnx.ModelProto()
    inlined.CopyFrom(proto)
    _drop_known(inlined)
    _name_overloads(inlined)
    functions = {(f.domain, f.name): f for f in inlined.functions}
    if len(functions) < len(inlined.functions):
        raise GraphError("two model-local functions have one name")
    levels = _find_levels(inlined.graph, functions)
    _share_opsets(inlined)
    for level in levels:
        _state_defaults(inlined.graph, {key: functions[key] for key in level})
        inlined = _inline(inlined, level)
    del inlined.functions[:]
    check_structure(inlined)
    # A provider without a kernel for such an operator takes its function.
    names = {(f.domain, f.name) for f in proto.functions if f.domain == MICROSOFT}
    if any((node.domain, node.op_type) in names for node in list_nodes(inlined.graph.node)):
        inlined.functions.extend(proto.functions)
    return inlined


def list_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield ``nodes`` and all that are in graphs within them."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                for inner in walk_graphs(graph):
                    yield from inner.node


def _inline(proto: onnx.ModelProto, keys: Sequence[_Key]) -> onnx.ModelProto:
    try:
        return onnx.inliner.inline_selected_functions(proto, list(keys))
    except Exception as error:  # any mismatch of a call and its function, in onnx's own terms
        raise InputError(
            f"a function of the model cannot be inlined: {_first_line(error)}"
        ) from error


def _drop_known(proto: onnx.ModelProto) -> None:
    """Drop the functions that have the names of operators of onnxruntime's own."""
    opsets = {entry.domain or "ai.onnx": entry.version for entry in proto.opset_import}
    version = opsets.get("ai.onnx", 0)
    kept = [f for f in proto.functions if not _is_known(f, version)]
    del proto.functions[:]
    proto.functions.extend(kept)


def _is_known(function: onnx.FunctionProto, version: int) -> bool:
    if function.domain in ("", "ai.onnx"):
        return 1 <= version < 2**31 and onnx.defs.has(function.name, version)
    node = onnx.NodeProto(domain=function.domain, op_type=function.name)
    return function.domain == MICROSOFT and bool(find_rule(node)) and not is_training_only(node)


def _name_overloads(proto: onnx.ModelProto) -> None:
    """Make the overload of a function part of its name, and so in each call of it."""
    overloaded = {(f.domain, f.name, f.overload) for f in proto.functions if f.overload}
    for node in list_nodes(_list_roots(proto)):
        if (node.domain, node.op_type, node.overload) in overloaded:
            node.op_type = f"{node.op_type}:{node.overload}"
            node.overload = ""
    for function in proto.functions:
        if function.overload:
            function.name = f"{function.name}:{function.overload}"
            function.overload = ""


def _list_roots(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    yield from proto.graph.node
    for function in proto.functions:
        yield from function.node


def _find_levels(graph: onnx.GraphProto, functions: _Functions) -> tuple[tuple[_Key, ...], ...]:
    """Return the functions that are called, each behind all that call it, in file order.

    Those of one level do not call each other.
    """
    sizes: dict[_Key, int] = {}
    for key in functions:
        _measure(key, functions, sizes)
    if _count(list_nodes(graph.node), sizes) > MAX_NODES:
        raise InputError(f"functions of the model stand for more than {MAX_NODES} nodes")
    depths = dict.fromkeys(_list_calls(graph.node, functions), 0)
    # A function is measured behind those that it calls.
    for key in reversed(sizes):
        for call in _list_calls(functions[key].node, functions) if key in depths else ():
            depths[call] = max(depths.get(call, 0), depths[key] + 1)
    n_levels = 1 + max(depths.values(), default=-1)
    return tuple(
        tuple(key for key in functions if depths.get(key) == level) for level in range(n_levels)
    )


def _measure(start: _Key, functions: _Functions, sizes: dict[_Key, int]) -> None:
    """Note how many nodes ``start`` and the functions that it calls stand for."""
    path: list[_Key] = [start]
    while path:
        key = path[-1]
        waiting = [c for c in _list_calls(functions[key].node, functions) if c not in sizes]
        if not waiting:
            if path.pop() not in sizes:
                n_nodes = _count(list_nodes(functions[key].node), sizes)
                sizes[key] = min(n_nodes, MAX_NODES + 1)
        elif waiting[0] in path:
            raise GraphError(f"function {waiting[0][1]!r} of the model calls itself")
        else:
            path.append(waiting[0])


def _list_calls(nodes: Iterable[onnx.NodeProto], functions: _Functions) -> tuple[_Key, ...]:
    """Return the functions that ``nodes`` call, each once."""
    keys = ((node.domain, node.op_type) for node in list_nodes(nodes))
    return tuple(dict.fromkeys(key for key in keys if key in functions))


def _count(nodes: Iterable[onnx.NodeProto], sizes: Mapping[_Key, int]) -> int:
    return sum(sizes.get((node.domain, node.op_type), 1) for node in nodes)


def _share_opsets(proto: onnx.ModelProto) -> None:
    """Let each function import the operator sets of the model, which gets those that it lacks."""
    versions = {entry.domain: entry.version for entry in proto.opset_import}
    for function in proto.functions:
        for entry in function.opset_import:
            if entry.domain not in versions:
                versions[entry.domain] = entry.version
                proto.opset_import.add(domain=entry.domain, version=entry.version)
            entry.version = versions[entry.domain]


def _state_defaults(graph: onnx.GraphProto, functions: _Functions) -> None:
    """Give each call of ``functions`` the attributes that it leaves to their defaults."""
    for node in list_nodes(graph.node):
        function = functions.get((node.domain, node.op_type))
        if function is not None and function.attribute_proto:
            stated = {attribute.name for attribute in node.attribute}
            defaults = function.attribute_proto
            node.attribute.extend(a for a in defaults if a.name not in stated)


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
