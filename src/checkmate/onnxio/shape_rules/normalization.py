"""Normalizations and the statistics that they make beside their result."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from checkmate.onnxio.model import TensorType
from checkmate.onnxio.shape_rules.call import Call, Made, Rule, like


def _find_statistics(call: Call, data: TensorType) -> TensorType:
    """Return the type of means and deviations: normalized axes count one."""
    axis = call.integer("axis", -1) % max(1, len(data.shape))
    shape = (*data.shape[:axis], *[1] * (len(data.shape) - axis))
    is_wide = data.elem_type == onnx.TensorProto.DOUBLE
    stash = data.elem_type if is_wide else call.integer("stash_type", onnx.TensorProto.FLOAT)
    return TensorType(stash, shape)


def _normalize_layer(call: Call) -> Made:
    """Return what onnxruntime makes also before opset 17; the scale has the type of it."""
    data = call.read(0)
    statistics = _find_statistics(call, data)
    return TensorType(call.read(1).elem_type, data.shape), statistics, statistics


def _normalize_simply(call: Call) -> Made:
    data = call.read(0)
    return TensorType(call.read(1).elem_type, data.shape), _find_statistics(call, data)


def _skip_and_normalize(call: Call) -> Made:
    """Return four outputs; the last is the sum of the input, what is skipped and the bias."""
    data = call.read(0)
    statistics = TensorType(onnx.TensorProto.FLOAT, (*data.shape[:-1], 1))
    return data, statistics, statistics, data


def _embed(call: Call) -> Made:
    """Return embeddings of words, positions and segments, normalized and as they are."""
    ids, words = call.read(0), call.read(2)
    made = TensorType(words.elem_type, (*ids.shape, words.shape[-1]))
    return made, TensorType(onnx.TensorProto.INT32, ids.shape[:1]), made


STANDARD_RULES: Mapping[str, Rule] = {
    "BatchNormalization": like(0, 3, 4, 3, 4),
    "GroupNormalization": like(0),
    "LayerNormalization": _normalize_layer,
    "MeanVarianceNormalization": like(0),
    "SimplifiedLayerNormalization": _normalize_simply,
}
"""Of the standard domain, where onnx knows less than onnxruntime runs."""

FUSED_RULES: Mapping[str, Rule] = {
    "BatchNormInternal": like(0, 3, 4, 3, 4),
    "EmbedLayerNormalization": _embed,
    "GroupNorm": like(0),
    "SkipGroupNorm": like(0, 0),
    "SkipLayerNormalization": _skip_and_normalize,
    "SkipSimplifiedLayerNormalization": _skip_and_normalize,
}
"""Of the com.microsoft domain."""
