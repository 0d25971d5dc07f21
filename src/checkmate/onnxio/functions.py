"""Functions, inlined: those of the model, and operators that onnxruntime has no kernel for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx
import onnx.inliner

from checkmate.errors import GraphError, InputError
from checkmate.onnxio.sanity import check_structure
from checkmate.onnxio.shape_rules import is_training_only

MAX_NODES = 500_000
"""Functions that call functions can stand for more nodes than fit in any memory."""

KERNELLESS_OPS = frozenset(
    {"CastLike", "CenterCropPad", "GroupNormalization", "HardSwish", "Mish"}
    | {"NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"}
)
"""Operators that onnxruntime itself inlines when it loads a model, at every level of optimization,
and puts at the end of its order. Measured with onnxruntime 1.31.1 on the CPU."""

_Key = tuple[str, str]


def inline_functions(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return ``proto`` with every call of a function replaced by its body.

    Functions are those of the model, and `KERNELLESS_OPS` in models that stock onnxruntime can run.
    Raises `GraphError` for recursive functions, `InputError` for what grows beyond `MAX_NODES` or
    cannot be inlined.
    """
    return _inline_kernelless(_inline_local(proto))


def _inline_local(proto: onnx.ModelProto) -> onnx.ModelProto:
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
        inlined = onnx.inliner.inline_local_functions(proto)
    except Exception as error:  # any mismatch of a call and its function, in onnx's own terms
        raise InputError(
            f"a function of the model cannot be inlined: {_first_line(error)}"
        ) from error
    check_structure(inlined)
    return inlined


def _inline_kernelless(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return ``proto`` without the operators that have no kernel.

    Where a body does not fit the operator's inputs, shape inference says it better later.
    """
    nodes = proto.graph.node
    is_found = any(n.op_type in KERNELLESS_OPS and n.domain in ("", "ai.onnx") for n in nodes)
    if not is_found or any(is_training_only(node) for node in nodes):
        return proto
    # All of them, because the body of one may call another.
    names = [("", op_type) for op_type in sorted(KERNELLESS_OPS)]
    try:
        return onnx.inliner.inline_selected_functions(proto, names, inline_schema_functions=True)
    except Exception:  # any operator that is not called as it should be, in onnx's own terms
        return proto


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
