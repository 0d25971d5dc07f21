"""What ops make that onnx does not know, or says too little of: one rule per operator.

The operators are those of onnxruntime: of its training build, and what its optimizers fuse.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from checkmate.onnxio.shape_rules import (
    activations,
    attention,
    gradients,
    normalization,
    products,
    training,
)
from checkmate.onnxio.shape_rules.call import Rule

MICROSOFT = "com.microsoft"

_MICROSOFT_RULES: Mapping[str, Rule] = {
    **activations.RULES,
    **attention.RULES,
    **gradients.RULES,
    **normalization.FUSED_RULES,
    **products.RULES,
    **training.RULES,
}
_STANDARD_RULES: Mapping[str, Rule] = {
    **normalization.STANDARD_RULES,
    **gradients.STANDARD_RULES,
}


_TRAINING_OPS = frozenset({*gradients.RULES, *training.RULES, "BatchNormInternal"}) - {
    "IsAllFinite"
}
"""Of the com.microsoft domain, what stock onnxruntime does not know."""


def is_training_only(node: onnx.NodeProto) -> bool:
    """Return whether only the training build of onnxruntime knows the operator of ``node``."""
    if node.domain == MICROSOFT:
        return node.op_type in _TRAINING_OPS
    return node.domain in ("", "ai.onnx") and node.op_type in gradients.STANDARD_RULES


def find_rule(node: onnx.NodeProto) -> Rule | None:
    """Return the rule for what ``node`` makes; None: there is none."""
    if node.domain == MICROSOFT:
        return _MICROSOFT_RULES.get(node.op_type)
    return _STANDARD_RULES.get(node.op_type) if node.domain in ("", "ai.onnx") else None
