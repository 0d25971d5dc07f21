"""Functions, inlined: those of the model, and operators that onnxruntime has no kernel for."""

from __future__ import annotations

import onnx
import onnx.inliner

from checkmate.onnxio.calls import inline_calls
from checkmate.onnxio.shape_rules import is_training_only

KERNELLESS_OPS = frozenset(
    {"Bernoulli", "CastLike", "CenterCropPad", "GroupNormalization", "HardSwish", "Mish"}
    | {"NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"}
)
"""Operators that onnxruntime itself inlines when it loads a model, at every level of optimization,
and puts at the end of its order. Measured with onnxruntime 1.31.1 on the CPU."""


def inline_functions(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return ``proto`` with every call of a function replaced by its body.

    Functions are those of the model, and `KERNELLESS_OPS` in models that stock onnxruntime can run.
    Raises what `inline_calls` does.
    """
    return _inline_kernelless(inline_calls(proto))


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
