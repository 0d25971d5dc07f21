"""Ops of onnxruntime that onnx does not know, as standard ops that make the same shapes.

The optimizers of onnxruntime make them (its documentation: docs/ContribOperators.md), so that a
graph that it has optimized, and what is rewritten from it, can be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx
from onnx import helper

_Replace = Callable[[onnx.NodeProto], Sequence[onnx.NodeProto]]

_DOMAINS = frozenset({"", "ai.onnx", "com.microsoft"})
_LIKE_FIRST = frozenset(
    {"BiasGelu", "BiasSoftmax", "FastGelu", "Gelu", "QuickGelu", "SimplifiedLayerNormalization"}
    | {"SkipLayerNormalization", "SkipSimplifiedLayerNormalization"}
)
"""Their outputs have the shape of their first input, statistics of rows (1 and 2) apart."""


def stand_in(node: onnx.NodeProto) -> Sequence[onnx.NodeProto]:
    """Return standard nodes that make tensors of the types that ``node`` makes.

    That is ``node`` itself where onnx knows it, or where nothing stands for it.
    """
    replace = _STAND_INS.get(node.op_type)
    is_foreign = node.domain == "com.microsoft" or not onnx.defs.has(node.op_type, node.domain)
    if replace is None or node.domain not in _DOMAINS or not is_foreign:
        return (node,)
    return replace(node)


def is_opaque(node: onnx.NodeProto) -> bool:
    """Return whether ``node`` is onnxruntime's own, and only the file can tell what it makes."""
    is_own = node.domain in _DOMAINS
    return is_own and not all(onnx.defs.has(n.op_type, n.domain) for n in stand_in(node))


def _copy_first(node: onnx.NodeProto) -> Sequence[onnx.NodeProto]:
    alike = (name for position, name in enumerate(node.output) if name and position in (0, 3))
    return [helper.make_node("Identity", [node.input[0]], [name]) for name in alike]


def _keep_only(op_type: str, attributes: frozenset[str]) -> _Replace:
    """Return what replaces a node by one of ``op_type`` with only some of its attributes."""

    def replace(node: onnx.NodeProto) -> Sequence[onnx.NodeProto]:
        plain = helper.make_node(op_type, node.input[:3], node.output)
        plain.attribute.extend(a for a in node.attribute if a.name in attributes)
        return [plain]

    return replace


def _multiply(node: onnx.NodeProto) -> Sequence[onnx.NodeProto]:
    """Return a product whose operands are transposed before it, as FusedMatMul says.

    A transposed batch stands between the two dimensions of its matrices.
    """
    flags = {attribute.name for attribute in node.attribute if attribute.i}
    nodes: list[onnx.NodeProto] = []
    for side, name in zip("AB", node.input, strict=False):
        rows = "ji" if f"trans{side}" in flags else "ij"
        is_inside = f"transBatch{side}" in flags
        stored = f"{rows[0]}...{rows[1]}" if is_inside else f"...{rows}"
        turned = f"{node.output[0]} from {side}"
        nodes.append(helper.make_node("Einsum", [name], [turned], equation=f"{stored}->...ij"))
    operands = [turned.output[0] for turned in nodes]
    return [*nodes, helper.make_node("MatMul", operands, node.output)]


_STAND_INS: Mapping[str, _Replace] = {
    "FusedConv": _keep_only(
        "Conv",
        frozenset({"auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"}),
    ),
    "FusedGemm": _keep_only("Gemm", frozenset({"alpha", "beta", "transA", "transB"})),
    "FusedMatMul": _multiply,
} | dict.fromkeys(_LIKE_FIRST, _copy_first)
