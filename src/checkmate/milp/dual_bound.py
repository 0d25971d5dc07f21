"""A bound that needs no trust: what given multipliers of the rows prove of a linear program.

For any multipliers of the right sign, ``cost @ x`` is at least what is left of it when each row,
times its multiplier, is taken off; and what is left is least where each column is at the end of
its range. See Neumaier, Shcherbina, *Safe bounds in linear and mixed-integer linear programming*,
Mathematical Programming 99, 2004, section 3. A solver's duals are taken as a hint only: poor ones
lead to a poor bound, never to a false one.
"""

from __future__ import annotations

import math

import numpy as np

from checkmate.milp.model import FloatArray, Program


def find_dual_bound(program: Program, duals: FloatArray) -> float:
    """Return what no point of the relaxation of ``program`` is below, whatever the ``duals``.

    ``duals`` is per row: at most 0 where the upper end counts, at least 0 where the lower does. Of
    the other sign, or not finite, they are taken for 0. Minus infinity where they prove nothing.
    """
    finite = np.where(np.isfinite(duals), duals, 0.0)
    falls, rises = np.minimum(finite, 0.0), np.maximum(finite, 0.0)
    falls = np.where(np.isfinite(program.row_upper), falls, 0.0)
    rises = np.where(np.isfinite(program.row_lower), rises, 0.0)
    left = program.cost - _sum_by_column(program, falls + rises)
    bound = program.offset
    bound += _dot(falls, program.row_upper) + _dot(rises, program.row_lower)
    bound += _dot(np.maximum(left, 0.0), program.lower)
    bound += _dot(np.minimum(left, 0.0), program.upper)
    return -math.inf if math.isnan(bound) else bound


def _sum_by_column(program: Program, per_row: FloatArray) -> FloatArray:
    weights = program.values * np.repeat(per_row, np.diff(program.starts))
    sums = np.bincount(program.indices, weights, minlength=program.n_cols)
    return sums.astype(np.float64)


def _dot(weights: FloatArray, ends: FloatArray) -> float:
    """Return the sum of the products; what has no weight counts nothing, even at infinity."""
    used = weights != 0.0
    return float(weights[used] @ ends[used])
