"""The bytes of a tensor."""

from __future__ import annotations

import math

import onnx

from checkmate.errors import InputError
from checkmate.onnxio.model import TensorType
from checkmate.onnxio.sanity import check_shape

_SUBBYTE_BITS: dict[int, int] = {
    onnx.TensorProto.INT4: 4,
    onnx.TensorProto.UINT4: 4,
    23: 4,  # FLOAT4E2M1
    25: 2,  # UINT2
    26: 2,  # INT2
}
"""By element type; onnx knows the names of those given as numbers only in its later versions."""


def count_nbytes(name: str, known: TensorType) -> int:
    """Return the bytes of a tensor; raise `InputError` when its elements have no fixed size."""
    check_shape(name, known.shape)
    n_elements = math.prod(known.shape)
    if known.elem_type in _SUBBYTE_BITS:
        return (n_elements * _SUBBYTE_BITS[known.elem_type] + 7) // 8
    try:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(known.elem_type)
    except KeyError:
        raise InputError(f"tensor {name!r} has unknown element type {known.elem_type}") from None
    if dtype.hasobject:
        raise InputError(f"tensor {name!r} holds strings; only numbers are planned")
    return n_elements * dtype.itemsize
