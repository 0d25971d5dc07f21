"""Matrix products and convolutions that other ops are fused into."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from checkmate.errors import InputError
from checkmate.onnxio.model import TensorType
from checkmate.onnxio.order import describe
from checkmate.onnxio.shape_rules.call import Call, Made, Rule, infer_as

_Shape = tuple[int, ...]


def _multiply(call: Call) -> Made:
    """Return a product whose sides may be transposed, in their last axes or with the batch.

    With ``transBatchA`` the batch axes come last but one: (M, B..., K) is read as (B..., M, K).
    """
    left = _orient(call.read(0).shape, call, "A")
    right = _orient(call.read(1).shape, call, "B")
    shape = _find_product(call, left, right)
    return (TensorType(call.read(0).elem_type, shape),)


def _orient(shape: _Shape, call: Call, side: str) -> _Shape:
    if len(shape) < 2:
        return shape
    if call.integer(f"transBatch{side}"):
        shape = (*shape[1:-1], shape[0], shape[-1])
    return (*shape[:-2], shape[-1], shape[-2]) if call.integer(f"trans{side}") else shape


def _find_product(call: Call, left: _Shape, right: _Shape) -> _Shape:
    rows, columns = left[-2:-1], right[-1:] if len(right) > 1 else ()
    depth = right[-2] if len(right) > 1 else right[0]
    if left[-1] != depth:
        raise InputError(
            f"op {describe(call.node)} multiplies {list(left)} by {list(right)}, which do not fit"
        )
    return (*np.broadcast_shapes(left[:-2], right[:-2]), *rows, *columns)


def _multiply_to_float(call: Call) -> Made:
    shape = _find_product(call, call.read(0).shape, call.read(1).shape)
    return (TensorType(onnx.TensorProto.FLOAT, shape),)


def _multiply_packed(call: Call) -> Made:
    """Return a product with weights of packed bits; an attribute counts their columns."""
    data = call.read(0)
    return (TensorType(data.elem_type, (*data.shape[:-1], call.integer("N"))),)


def _measure_distances(call: Call) -> Made:
    left, right = call.read(0), call.read(1)
    return (TensorType(left.elem_type, (left.shape[0], right.shape[0])),)


RULES: Mapping[str, Rule] = {
    "CDist": _measure_distances,
    "DynamicQuantizeMatMul": _multiply_to_float,
    "FusedConv": infer_as("Conv", n_inputs=2),
    "FusedGemm": infer_as("Gemm"),
    "FusedMatMul": _multiply,
    "FusedMatMulActivation": _multiply,
    "MatMulBnb4": _multiply_packed,
    "MatMulIntegerToFloat": _multiply_to_float,
    "MatMulNBits": _multiply_packed,
    "TransposeMatMul": _multiply,
}
"""Of the com.microsoft domain."""
