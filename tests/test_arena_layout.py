"""Arenas of one region, and of regions by request."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkmate.errors import OutOfMemoryError
from checkmate.runtime.execute import RunOptions, run_model
from checkmate.runtime.protocol import Layout, Settings, TensorSpec
from checkmate.runtime.session import needs_shared_arena
from onnx_models import save

MERGES = """
merges (float[N] x) => (float s, float t) {
    a = Concat <axis = 0> (x, x)
    b = Concat <axis = 0> (x, x)
    ab = Sub(a, b)
    s = ReduceSum <keepdims = 0> (ab)
    c = Concat <axis = 0> (x, x, x, x, x, x)
    t = ReduceSum <keepdims = 0> (c)
}
"""
N = 1 << 18


def run_within_six_units(folder: Path, layout: Layout | None) -> None:
    """Run what holds three tensors of two units each, then one of six in their place."""
    path = save(folder, MERGES.replace("N", str(N)))
    settings = Settings(threads=1, arena_limit_nbytes=6 * 4 * N + 4096, layout=layout)
    options = RunOptions(settings, n_runs=0, n_timed_runs=2)
    run_model(path, [TensorSpec("x", 1, (N,))], options)


@pytest.mark.parametrize("layout", ["region", None])
def test_what_is_free_in_one_region_merges(layout: Layout | None, tmp_path: Path) -> None:
    run_within_six_units(tmp_path, layout)


def test_regions_by_request_do_not_merge(tmp_path: Path) -> None:
    with pytest.raises(OutOfMemoryError, match="6,291,456 B, where 4,096 B are left"):
        run_within_six_units(tmp_path, "requests")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (Settings("cpu"), False),
        (Settings("cpu", arena_limit_nbytes=1), True),
        (Settings("cuda", arena_limit_nbytes=1), False),
        (Settings("cuda", arena_limit_nbytes=1, layout="requests"), False),
        (Settings("cuda", arena_limit_nbytes=1, layout="region"), True),
        (Settings("cuda", layout="region"), False),
    ],
)
def test_cuda_has_an_arena_of_its_own_unless_it_is_to_be_one_region(
    settings: Settings, expected: bool
) -> None:
    assert needs_shared_arena(settings) is expected
