"""Inputs that are drawn."""

from __future__ import annotations

import numpy as np
import pytest

from checkmate.errors import InputError
from checkmate.runtime.dtypes import NUMPY_DTYPES
from checkmate.runtime.inputs import make_inputs
from checkmate.runtime.protocol import TensorSpec

FLOAT, INT32, INT64, BOOL, HALF, UINT8, STRING = 1, 6, 7, 9, 10, 2, 8


def draw(elem_type: int, *shape: int, **options: object) -> np.ndarray:
    spec = TensorSpec("x", elem_type, shape, **options)  # type: ignore[arg-type]
    return make_inputs([spec], seed=3)["x"]


@pytest.mark.parametrize("elem_type", sorted(NUMPY_DTYPES))
@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (0, 4)])
def test_every_type_has_its_dtype_and_shape(elem_type: int, shape: tuple[int, ...]) -> None:
    array = draw(elem_type, *shape)
    assert isinstance(array, np.ndarray)
    assert array.dtype == NUMPY_DTYPES[elem_type]
    assert array.shape == shape


def test_the_same_seed_gives_the_same_bytes_and_another_does_not() -> None:
    specs = [TensorSpec("a", FLOAT, (4, 4)), TensorSpec("b", FLOAT, (4, 4))]
    first, again, other = (make_inputs(specs, seed) for seed in (1, 1, 2))
    assert first["a"].tobytes() == again["a"].tobytes()
    assert first["a"].tobytes() != other["a"].tobytes()
    assert first["a"].tobytes() != first["b"].tobytes()


def test_weights_have_the_deviation_that_keeps_a_product_in_size() -> None:
    weights = draw(FLOAT, 200, 50, 2)
    assert weights.std() == pytest.approx(1 / 10, rel=0.05)
    assert weights.mean() == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("options", [{"shape": (9,)}, {"shape": (9, 9), "positive": True}])
def test_scales_and_positive_inputs_are_near_one(options: dict[str, object]) -> None:
    array = make_inputs([TensorSpec("x", FLOAT, **options)], 0)["x"]  # type: ignore[arg-type]
    assert array.min() >= 0.75
    assert array.max() < 1.25


@pytest.mark.parametrize("elem_type", [INT32, INT64, UINT8])
def test_integers_fill_their_range(elem_type: int) -> None:
    assert set(draw(elem_type, 500, upper=7).tolist()) == set(range(7))
    assert set(draw(elem_type, 500).tolist()) == {0, 1}
    assert set(draw(elem_type, 5, upper=0).tolist()) == {0}


@pytest.mark.parametrize("elem_type", [INT32, UINT8])
def test_integers_that_divide_are_above_zero(elem_type: int) -> None:
    assert set(draw(elem_type, 500, positive=True).tolist()) == {1}
    assert set(draw(elem_type, 500, positive=True, upper=4).tolist()) == {1, 2, 3}
    assert set(draw(elem_type, 5, positive=True, upper=1).tolist()) == {0}


def test_a_bound_beyond_the_type_is_cut() -> None:
    assert draw(UINT8, 2000, upper=10**6).max() <= 254


def test_half_precision_has_no_denormals_to_speak_of() -> None:
    weights = draw(HALF, 4, 2**20).astype(np.float32)
    assert (np.abs(weights) < 2**-14).mean() < 0.05


def test_a_type_that_cannot_run_is_an_error() -> None:
    with pytest.raises(InputError, match="element type 8"):
        draw(STRING, 2)
