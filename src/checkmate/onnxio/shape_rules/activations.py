"""Elementwise ops: what they make has the shape of what they read first."""

from __future__ import annotations

import math
from collections.abc import Mapping

import onnx

from checkmate.onnxio.model import TensorType
from checkmate.onnxio.shape_rules.call import Call, Made, Rule, infer_as, like, with_mask

_BITS_PER_WORD = 32


def _drop_to_bits(call: Call) -> Made:
    """Return the data, and a mask of one bit per element in words of 32."""
    data = call.read(0)
    n_words = -(-math.prod(data.shape) // _BITS_PER_WORD)
    return data, TensorType(onnx.TensorProto.UINT32, (n_words,))


def _halve(call: Call) -> Made:
    data = call.read(0)
    return (TensorType(data.elem_type, (*data.shape[:-1], data.shape[-1] // 2)),)


def _expand_dims(call: Call) -> Made:
    data = call.read(0)
    (axis,) = call.evaluate(1)
    place = axis if axis >= 0 else len(data.shape) + 1 + axis
    return (TensorType(data.elem_type, (*data.shape[:place], 1, *data.shape[place:])),)


RULES: Mapping[str, Rule] = {
    "BiasAdd": like(0),
    "BiasDropout": with_mask(onnx.TensorProto.BOOL),
    "BiasGelu": like(0),
    "BiasSoftmax": like(0),
    "BiasSplitGelu": _halve,
    "BitmaskBiasDropout": _drop_to_bits,
    "BitmaskDropout": _drop_to_bits,
    "ExpandDims": _expand_dims,
    "FakeQuant": with_mask(onnx.TensorProto.BOOL),
    "FastGelu": like(0),
    "GatherND": infer_as("GatherND"),
    "Gelu": like(0),
    "Inverse": like(0),
    "Pad": infer_as("Pad"),
    "QuickGelu": like(0),
    "Range": infer_as("Range"),
    "ScaledSiLU": like(0),
    "Trilu": infer_as("Trilu"),
}
"""Of the com.microsoft domain."""
