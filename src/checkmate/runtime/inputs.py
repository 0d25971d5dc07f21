"""Values for the inputs of a graph: deterministic, finite through deep nets, in range."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from checkmate.errors import InputError
from checkmate.runtime.dtypes import BOOL_TYPE, COMPLEX_TYPES, FLOAT_TYPES, NUMPY_DTYPES
from checkmate.runtime.protocol import TensorSpec


def make_inputs(specs: Sequence[TensorSpec], seed: int) -> dict[str, np.ndarray]:
    """Return one array per spec; the same specs and seed give the same bytes.

    Floats of two or more dimensions are normal with deviation ``1 / sqrt(fan in)``, so that a
    product with them keeps its size through many layers; those of one or none are near 1, as
    scales and biases are, because a scale near 0 would erase what flows through it.
    """
    arrays: dict[str, np.ndarray] = {}
    for position, spec in enumerate(specs):
        if spec.elem_type not in NUMPY_DTYPES:
            raise InputError(f"input {spec.name!r} has element type {spec.elem_type}, never run")
        # Drawn without dimensions, numpy returns a number instead of an array.
        drawn = _draw(spec, np.random.default_rng((seed, position)))
        arrays[spec.name] = np.asarray(drawn, dtype=NUMPY_DTYPES[spec.elem_type])
    return arrays


def _draw(spec: TensorSpec, rng: np.random.Generator) -> np.ndarray:
    dtype = NUMPY_DTYPES[spec.elem_type]
    if spec.elem_type in FLOAT_TYPES:
        return _draw_floats(spec, rng).astype(dtype, copy=False)
    if spec.elem_type in COMPLEX_TYPES:
        real, imaginary = (_draw_floats(spec, rng) for _ in range(2))
        return (real + 1j * imaginary).astype(dtype)
    if spec.elem_type == BOOL_TYPE:
        return rng.random(spec.shape, dtype=np.float32) < 0.5
    upper = 2 if spec.upper is None else max(1, spec.upper)
    upper = min(upper, int(np.iinfo(dtype).max))
    lower = 1 if spec.positive and upper > 1 else 0
    return rng.integers(lower, upper, spec.shape, dtype=np.int64).astype(dtype, copy=False)


def _draw_floats(spec: TensorSpec, rng: np.random.Generator) -> np.ndarray:
    width = np.float64 if spec.elem_type == 11 else np.float32
    if len(spec.shape) < 2 or spec.positive:
        return rng.random(spec.shape, dtype=width) / 2 + width(0.75)
    fan_in = max(1, math.prod(spec.shape[1:]))
    # A huge fan in would put half precision among the denormals, which are slow.
    scale = width(1 / math.sqrt(min(fan_in, 2**16)))
    return rng.standard_normal(spec.shape, dtype=width) * scale
