"""Element types of ONNX as numpy knows them, without onnx."""

from __future__ import annotations

import ml_dtypes
import numpy as np

BFLOAT16 = 16

NUMPY_DTYPES: dict[int, np.dtype] = {
    1: np.dtype(np.float32),
    2: np.dtype(np.uint8),
    3: np.dtype(np.int8),
    4: np.dtype(np.uint16),
    5: np.dtype(np.int16),
    6: np.dtype(np.int32),
    7: np.dtype(np.int64),
    9: np.dtype(np.bool_),
    10: np.dtype(np.float16),
    11: np.dtype(np.float64),
    12: np.dtype(np.uint32),
    13: np.dtype(np.uint64),
    14: np.dtype(np.complex64),
    15: np.dtype(np.complex128),
    BFLOAT16: np.dtype(ml_dtypes.bfloat16),
    17: np.dtype(ml_dtypes.float8_e4m3fn),
    18: np.dtype(ml_dtypes.float8_e4m3fnuz),
    19: np.dtype(ml_dtypes.float8_e5m2),
    20: np.dtype(ml_dtypes.float8_e5m2fnuz),
}
"""By ``onnx.TensorProto.DataType``; strings and types below one byte are not run."""

ELEM_TYPES: dict[np.dtype, int] = {dtype: code for code, dtype in NUMPY_DTYPES.items()}

FLOAT_TYPES = frozenset({1, 10, 11, 16, 17, 18, 19, 20})
BOOL_TYPE = 9
COMPLEX_TYPES = frozenset({14, 15})


def is_native(elem_type: int) -> bool:
    """Return whether onnxruntime hands tensors of this type to numpy itself."""
    return elem_type < BFLOAT16


def raw_dtype(dtype: np.dtype) -> np.dtype:
    """Return the unsigned integers as wide as ``dtype``, for views of its bits."""
    return np.dtype(f"u{dtype.itemsize}")
