"""The rewritten model given where the model that it was made from is wanted."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from checkmate.cli.source import Asked, read_source_of
from checkmate.errors import InputError
from checkmate.onnxio.rewrite import is_rewritten, rewrite_model
from onnx_models import DEEP_MLP, save, save_proto
from trials import Solved, solve_file

DIMS = {"N": 512}


def solve(path: Path, *, fences: str = "all", percent: int = 85) -> Solved:
    return solve_file(path, percent, fences=fences, dims=DIMS, strategy="greedy")  # type: ignore[arg-type]


@pytest.mark.parametrize("fences", ["none", "all"])
def test_a_rewritten_model_is_told_from_one_that_has_changed(fences: str, tmp_path: Path) -> None:
    path = save(tmp_path, DEEP_MLP)
    solved = solve(path, fences=fences)
    model = rewrite_model(solved.rewriting.model, solved.plan.schedule, solved.rewriting.fences)
    rewritten = save_proto(tmp_path, model, "rewritten.onnx")
    with pytest.raises(InputError, match=r"rewritten.onnx' is a rewritten model") as caught:
        read_source_of(solved.record, rewritten, Asked(DIMS, costs="flops"))
    assert "--onnx" in str(caught.value.hint)
    changed = onnx.load(path)
    changed.graph.node[1].op_type = "Sigmoid"
    with pytest.raises(InputError, match="but the model has digest"):
        read_source_of(
            solved.record, save_proto(tmp_path, changed, "changed.onnx"), Asked(DIMS, costs="flops")
        )


def test_a_model_without_the_dimensions_that_were_bound_is_told_too(tmp_path: Path) -> None:
    path = save(tmp_path, DEEP_MLP)
    solved = solve(path)
    fixed = save(tmp_path, DEEP_MLP.replace("float[N, 64]", "float[512, 64]"))
    again = solve_file(fixed, 85, strategy="greedy")
    model = rewrite_model(again.rewriting.model, again.plan.schedule, "all")
    with pytest.raises(InputError, match="is a rewritten model"):
        read_source_of(
            solved.record, save_proto(tmp_path, model, "r.onnx"), Asked(DIMS, costs="flops")
        )


def test_a_schedule_of_a_rewritten_model_fits_it(tmp_path: Path) -> None:
    first = solve(save(tmp_path, DEEP_MLP))
    model = rewrite_model(first.rewriting.model, first.plan.schedule, "all")
    path = save_proto(tmp_path, model, "rewritten.onnx")
    assert is_rewritten(onnx.load(path))
    record = solve(path, fences="none", percent=100).record
    assert read_source_of(record, path, Asked(DIMS, costs="flops")).model is not None
