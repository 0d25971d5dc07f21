"""Arrays of every type in files, and their comparison by bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from checkmate.errors import InputError
from checkmate.runtime.arrays import Difference, SavedArrays, compare_outputs, save_arrays
from checkmate.runtime.dtypes import NUMPY_DTYPES


def saved(folder: Path, name: str, arrays: dict[str, np.ndarray]) -> SavedArrays:
    save_arrays(folder / f"{name}.npz", arrays)
    return SavedArrays(folder / f"{name}.npz")


def test_every_type_comes_back_as_it_was(tmp_path: Path) -> None:
    arrays = {
        f"t/{code}": np.arange(6).reshape(2, 3).astype(dtype)
        for code, dtype in NUMPY_DTYPES.items()
    } | {"scalar": np.array(3.0), "empty": np.zeros((0, 2), np.float32)}
    back = saved(tmp_path, "a", arrays).read_all()
    assert list(back) == list(arrays)
    for name, array in arrays.items():
        assert back[name].dtype == array.dtype
        assert back[name].shape == array.shape
        assert back[name].tobytes() == array.tobytes()


def test_equal_bits_do_not_differ_not_even_nan(tmp_path: Path) -> None:
    arrays = {"x": np.array([1.0, np.nan, np.inf], np.float32)}
    assert compare_outputs(saved(tmp_path, "a", arrays), saved(tmp_path, "b", arrays)) == ()


def test_another_nan_and_another_zero_differ(tmp_path: Path) -> None:
    first = np.array([0x7FC00000, 0], np.uint32).view(np.float32)
    second = np.array([0x7FC00001, 0x80000000], np.uint32).view(np.float32)
    assert compare_outputs(
        saved(tmp_path, "a", {"x": first}), saved(tmp_path, "b", {"x": second})
    ) == (Difference("x", 2, 0.0),)


def test_a_difference_says_how_many_and_how_much(tmp_path: Path) -> None:
    first = saved(tmp_path, "a", {"x": np.array([1.0, 2.0, 3.0]), "y": np.zeros(2)})
    second = saved(tmp_path, "b", {"x": np.array([1.0, 2.5, 1.0]), "y": np.zeros(2)})
    assert compare_outputs(first, second) == (Difference("x", 2, 2.0),)


def test_what_only_one_run_made_differs(tmp_path: Path) -> None:
    first = saved(tmp_path, "a", {"x": np.zeros(1), "y": np.zeros(1)})
    second = saved(tmp_path, "b", {"x": np.zeros((1, 1)), "z": np.zeros(1)})
    assert [d.name for d in compare_outputs(first, second)] == ["x", "y", "z"]


def test_a_file_that_is_no_archive_is_an_input_error(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(b"no archive")
    with pytest.raises(InputError, match=r"cannot read arrays in .*x\.npz"):
        SavedArrays(path)


@pytest.mark.parametrize(
    ("other", "is_rounding"),
    [(1 + 2**-17, True), (1 + 2**-15, False), (float("nan"), False), (float("inf"), False)],
)
def test_only_small_finite_differences_are_rounding(
    other: float, is_rounding: bool, tmp_path: Path
) -> None:
    first = saved(tmp_path, "a", {"x": np.array([1.0, 1.0], np.float32)})
    second = saved(tmp_path, "b", {"x": np.array([1.0, other], np.float32)})
    (difference,) = compare_outputs(first, second)
    assert difference.is_rounding == is_rounding


def test_integers_do_not_round(tmp_path: Path) -> None:
    first = saved(tmp_path, "a", {"x": np.array([10**9])})
    second = saved(tmp_path, "b", {"x": np.array([10**9 + 1])})
    (difference,) = compare_outputs(first, second)
    assert not difference.is_rounding


@pytest.mark.parametrize(
    ("element", "other", "is_rounding"),
    [
        (1e-9, -1e-9, True),
        (1e-9, 1e-7, False),
        (1e-9, float("nan"), False),
        # Not small beside the largest of all: 1e-6 of it is far more than rounding.
        (1e-2, 1e-2 + 1e-6, False),
    ],
)
def test_what_is_nothing_but_rounding_may_change_its_sign(
    element: float, other: float, is_rounding: bool, tmp_path: Path
) -> None:
    loss = {"loss": np.array([5.0], np.float32)}
    first = saved(tmp_path, "a", loss | {"x": np.array([element], np.float32)})
    second = saved(tmp_path, "b", loss | {"x": np.array([other], np.float32)})
    (difference,) = compare_outputs(first, second)
    assert difference.is_rounding == is_rounding
