"""A mixed-integer program as arrays, and the builder of its rows."""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from checkmate.errors import NotFoundError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]
BoolArray = NDArray[np.bool_]

Term = tuple[int, float]
"""A column and its coefficient."""


@dataclass(frozen=True, slots=True)
class Program:
    """Minimise ``offset + cost @ x`` within the bounds of columns and rows."""

    cost: FloatArray
    """Per column; shape (n_cols,)."""
    offset: float
    lower: FloatArray
    """Per column."""
    upper: FloatArray
    """Per column."""
    is_integer: BoolArray
    """Per column."""
    row_lower: FloatArray
    """Per row; shape (n_rows,)."""
    row_upper: FloatArray
    """Per row."""
    starts: IntArray
    """Where each row begins in ``indices`` and ``values``; shape (n_rows + 1,)."""
    indices: IntArray
    """Column of each coefficient, row by row."""
    values: FloatArray
    """Each coefficient, row by row."""

    @property
    def n_cols(self) -> int:
        """How many columns there are."""
        return len(self.cost)

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return len(self.row_lower)

    def find_row_values(self, values: FloatArray) -> FloatArray:
        """Return the sum of each row where the columns have ``values``."""
        sums = np.concatenate(([0.0], np.cumsum(self.values * values[self.indices])))
        totals: FloatArray = sums[self.starts[1:]] - sums[self.starts[:-1]]
        return totals

    def take_rows(self, chosen: BoolArray) -> Program:
        """Return the program with the ``chosen`` rows alone; per row."""
        lengths = np.diff(self.starts)
        is_kept = np.repeat(chosen, lengths)
        return replace(
            self,
            row_lower=self.row_lower[chosen],
            row_upper=self.row_upper[chosen],
            starts=np.concatenate(([0], np.cumsum(lengths[chosen]))).astype(np.int32),
            indices=self.indices[is_kept],
            values=self.values[is_kept],
        )


def relax(program: Program) -> Program:
    """Return ``program`` with no column integer."""
    return replace(program, is_integer=np.zeros(program.n_cols, dtype=np.bool_))


class Rows:
    """Rows in the making, each ``terms <= upper``."""

    def __init__(self, deadline_s: float | None = None) -> None:
        self._deadline_s = math.inf if deadline_s is None else deadline_s
        self._indices = array("i")  # millions of coefficients, 12 bytes each
        self._values = array("d")
        self._starts: list[int] = [0]
        self._upper: list[float] = []

    def add(self, terms: Iterable[Term], upper: float) -> None:
        """Add the row ``terms <= upper``; terms of one column add up, zeros are left out.

        Raises `NotFoundError` after the deadline: large programs take minutes to write.
        """
        if time.monotonic() > self._deadline_s:
            raise NotFoundError(
                "the time limit ended while the program was written", hint="raise --time-limit"
            )
        merged: dict[int, float] = {}
        for column, coefficient in terms:
            merged[column] = merged.get(column, 0.0) + coefficient
        for column, coefficient in merged.items():
            if coefficient:
                self._indices.append(column)
                self._values.append(coefficient)
        self._starts.append(len(self._indices))
        self._upper.append(upper)

    def add_at_most(self, column: int, others: Iterable[int]) -> None:
        """Add the row that ``column`` is at most the sum of ``others``."""
        self.add([(column, 1.0), *((other, -1.0) for other in others)], 0.0)

    def add_arrays(self, columns: IntArray, coefficients: FloatArray, upper: float) -> None:
        """Add a row of different ``columns``, none with coefficient zero."""
        self.add_beside((), columns, coefficients, upper)

    def add_beside(
        self, terms: Iterable[Term], columns: IntArray, coefficients: FloatArray, upper: float
    ) -> None:
        """Add the row of ``terms`` and of different other ``columns``."""
        self._indices.frombytes(columns.astype(np.int32).tobytes())
        self._values.frombytes(coefficients.astype(np.float64).tobytes())
        self.add(terms, upper)

    @property
    def count(self) -> int:
        """How many rows there are."""
        return len(self._upper)

    @property
    def starts(self) -> IntArray:
        """Where each row begins."""
        return np.array(self._starts, dtype=np.int32)

    @property
    def indices(self) -> IntArray:
        """The column of each coefficient."""
        return np.array(self._indices, dtype=np.int32)

    @property
    def values(self) -> FloatArray:
        """Each coefficient."""
        return np.array(self._values, dtype=np.float64)

    @property
    def upper(self) -> FloatArray:
        """The right-hand side of each row."""
        return np.array(self._upper, dtype=np.float64)
