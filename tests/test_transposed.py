"""Transposes that onnxruntime fuses into products, while others still read what they make."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkmate.onnxio.windows import Fences
from default_runs import LEVELS, count_ops, feeds_of, name_copies, rewrite, run
from onnx_models import save

SHARED = """
shared (float[8, 16] x, float[4, 16] w) => (float[8, 4] y, float z, float v) {
    a = Exp(x)
    t = Transpose <perm = [1, 0]> (w)
    h = MatMul(a, t)
    s = Neg(h)
    y = Cos(s)
    k = Exp(t)
    z = ReduceSum <keepdims = 0> (k)
    v = ReduceSum <keepdims = 0> (a)
}
"""
ORDER = "a t h s y k z v"


@pytest.mark.parametrize("level", LEVELS)
def test_a_transpose_runs_where_it_is_scheduled(level: str, tmp_path: Path) -> None:
    path = save(tmp_path, SHARED)
    ran = run(rewrite(path, ORDER, "all"), feeds_of(path), tmp_path, level)
    assert ran.executed == name_copies(ORDER)


@pytest.mark.parametrize("fences", ["none", "all"])
def test_without_fences_the_product_reads_what_was_transposed(
    fences: Fences, tmp_path: Path
) -> None:
    path = save(tmp_path, SHARED)
    counts = count_ops(rewrite(path, ORDER, fences), "ENABLE_ALL", tmp_path)
    assert counts["FusedMatMul"] == (fences == "none")
    assert counts["Transpose"] == 1


def test_before_the_first_fence_of_a_run_it_is_the_next_one_that_waits(tmp_path: Path) -> None:
    path = save(tmp_path, SHARED)
    ran = run(rewrite(path, "a t h s y a k z v", "run"), feeds_of(path), tmp_path)
    assert ran.executed.index("t") < ran.executed.index("a__recompute1")


def test_a_transpose_that_products_alone_read_is_still_fused(tmp_path: Path) -> None:
    path = save(tmp_path, SHARED.replace("k = Exp(t)", "k = Exp(h)"))
    counts = count_ops(rewrite(path, ORDER, "all"), "ENABLE_ALL", tmp_path)
    assert (counts["FusedMatMul"], counts["Transpose"]) == (1, 0)
