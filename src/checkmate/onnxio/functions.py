"""Model-local functions, inlined."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx
import onnx.inliner

from checkmate.errors import GraphError, InputError

MAX_NODES = 500_000
"""Functions that call functions can stand for more nodes than fit in any memory."""

_Key = tuple[str, str]


def inline_functions(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return ``proto`` with every call of a model-local function replaced by its body.

    Raises `GraphError` for recursive functions, `InputError` for what grows beyond `MAX_NODES` or
    cannot be inlined.
    """
    if not proto.functions:
        return proto
    functions = {(f.domain, f.name): f for f in proto.functions}
    if len(functions) < len(proto.functions):
        raise GraphError("two model-local functions have one name")
    sizes: dict[_Key, int] = {}
    for key in functions:
        _measure(key, functions, sizes)
    if _count(proto.graph.node, sizes) > MAX_NODES:
        raise InputError(f"functions of the model stand for more than {MAX_NODES} nodes")
    try:
        return onnx.inliner.inline_local_functions(proto)
    except Exception as error:  # any mismatch of a call and its function, in onnx's own terms
        raise InputError(
            f"a function of the model cannot be inlined: {_first_line(error)}"
        ) from error


def _measure(
    start: _Key, functions: Mapping[_Key, onnx.FunctionProto], sizes: dict[_Key, int]
) -> None:
    """Note how many nodes ``start`` and the functions that it calls stand for."""
    path: list[_Key] = [start]
    while path:
        key = path[-1]
        calls = [(n.domain, n.op_type) for n in functions[key].node]
        waiting = [call for call in calls if call in functions and call not in sizes]
        if not waiting:
            sizes[path.pop()] = min(_count(functions[key].node, sizes), MAX_NODES + 1)
        elif waiting[0] in path:
            raise GraphError(f"function {waiting[0][1]!r} of the model calls itself")
        else:
            path.append(waiting[0])


def _count(nodes: Iterable[onnx.NodeProto], sizes: Mapping[_Key, int]) -> int:
    return sum(sizes.get((node.domain, node.op_type), 1) for node in nodes)


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
