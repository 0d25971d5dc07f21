"""Arrays of every element type in .npz files, and what differs between two of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

from checkmate.errors import InputError
from checkmate.runtime.dtypes import ELEM_TYPES, FLOAT_TYPES, NUMPY_DTYPES, raw_dtype

_INDEX = "index.json"
ROUNDING_ULPS = 128
NOISE = 1e-4
"""Outputs below this share of the largest element of all may be nothing but rounding: the gradient
of the bias of an attention's keys is zero, and comes out as 1e-9 of one sign or the other."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A tensor that is not the same, bit by bit, in two runs."""

    name: str
    n_elements: int
    """How many elements differ; 0: its type or shape differs, or one run lacks it."""
    max_error: float
    """The largest absolute difference among the finite ones."""
    is_rounding: bool = False
    """Every difference is finite, and within `ROUNDING_ULPS` units in the last place of the
    tensor's largest element, or of what counts as noise: as much as another order of the same sums
    moves them."""


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write ``arrays`` to ``path``, which ends in ``.npz``.

    Numpy would pickle types of its extensions, so each array is stored as raw unsigned integers
    and an index in JSON says what they mean.
    """
    index = [[name, ELEM_TYPES[array.dtype], list(array.shape)] for name, array in arrays.items()]
    members = {
        str(position): np.ascontiguousarray(array).reshape(-1).view(raw_dtype(array.dtype))
        if array.dtype.itemsize <= 8
        else np.ascontiguousarray(array).reshape(-1)
        for position, array in enumerate(arrays.values())
    }
    text = np.frombuffer(json.dumps(index).encode(), dtype=np.uint8)
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **{_INDEX: text}, **members)


class SavedArrays:
    """The arrays of one file, each read when it is asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._open() as members:
            index = json.loads(bytes(members[_INDEX]))
        self._index = {str(name): (i, int(t), tuple(s)) for i, (name, t, s) in enumerate(index)}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the arrays, in file order."""
        return tuple(self._index)

    def read(self, name: str) -> np.ndarray:
        """Return the array ``name``."""
        position, elem_type, shape = self._index[name]
        with self._open() as members:
            raw = members[str(position)]
        return raw.view(NUMPY_DTYPES[elem_type]).reshape(shape)

    def read_all(self) -> dict[str, np.ndarray]:
        """Return all arrays, in file order."""
        return {name: self.read(name) for name in self._index}

    @contextmanager
    def _open(self) -> Iterator[Mapping[str, np.ndarray]]:
        try:
            with np.load(self.path, allow_pickle=False) as members:
                yield members
        except (OSError, ValueError, KeyError) as error:
            raise InputError(f"cannot read arrays in {self.path}: {error}") from error


def compare_outputs(first: SavedArrays, second: SavedArrays) -> tuple[Difference, ...]:
    """Return the tensors that are not bit for bit the same; a NaN equals only its own bits."""
    differences: list[Difference] = []
    for name in dict.fromkeys((*first.names, *second.names)):
        if name not in first.names or name not in second.names:
            differences.append(Difference(name, 0, 0.0))
            continue
        difference = _compare(name, first.read(name), second.read(name))
        differences.extend([] if difference is None else [difference])
    if all(found.is_rounding for found in differences):
        return tuple(differences)
    noise = NOISE * max((_find_largest(first.read(name)) for name in first.names), default=0.0)
    return tuple(
        found if found.n_elements == 0 else _compare_again(found, first, second, noise)
        for found in differences
    )


def _compare_again(
    found: Difference, first: SavedArrays, second: SavedArrays, noise: float
) -> Difference:
    """Return ``found``, which may be rounding of what is smaller than ``noise``."""
    return _compare(found.name, first.read(found.name), second.read(found.name), noise) or found


def _compare(
    name: str, first: np.ndarray, second: np.ndarray, noise: float = 0.0
) -> Difference | None:
    if first.dtype != second.dtype or first.shape != second.shape:
        return Difference(name, 0, 0.0)
    n_bytes = first.dtype.itemsize
    bits = [np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in (first, second)]
    differs = (bits[0] != bits[1]).reshape(-1, n_bytes).any(axis=1)
    if not differs.any():
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        errors = np.abs(_widen(first)[differs] - _widen(second)[differs])
    finite = errors[np.isfinite(errors)]
    max_error = float(finite.max(initial=0.0))
    largest = max(_find_largest(first), noise)
    is_rounding = len(finite) == len(errors) and max_error <= _count_rounding(first, largest)
    return Difference(name, int(differs.sum()), max_error, is_rounding)


def _count_rounding(array: np.ndarray, largest: float) -> float:
    """Return the most that rounding is taken to move an element of ``array``."""
    if ELEM_TYPES[array.dtype] not in FLOAT_TYPES:
        return 0.0
    last_place = float(ml_dtypes.finfo(array.dtype).eps)  # type: ignore[no-untyped-call]
    return ROUNDING_ULPS * last_place * largest


def _find_largest(array: np.ndarray) -> float:
    """Return the magnitude of the largest finite element; integers do not count."""
    if ELEM_TYPES[array.dtype] not in FLOAT_TYPES:
        return 0.0
    wide = _widen(array)
    return float(np.abs(wide).max(initial=0.0, where=np.isfinite(wide)))


def _widen(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).astype(complex if array.dtype.kind == "c" else float)
