"""Operators without a kernel, in place of which onnxruntime runs what onnx defines them by."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkmate.cli.noting import list_doubts
from checkmate.onnxio.doubts import find_bodied
from checkmate.onnxio.read import read_model
from onnx_models import save
from trials import judge_trial, run, solve_file

DRAWN = """g (float[64, 64] x) => (float[64, 64] y, double[64, 64] z) {
    a = Sigmoid(x)
    b = Bernoulli <seed = 3.0> (a)
    c = Neg(b)
    y = Add(a, c)
    d = Bernoulli <dtype = 11, seed = 4.0> (a)
    z = Exp(d)
}"""
CURVED = """g (double[64, 64] x) => (double[64, 64] y) {
    a = Exp(x)
    b = Softsign(a)
    c = Neg(b)
    y = Sub(c, a)
}"""


def test_bernoulli_is_planned_as_what_it_runs_as(tmp_path: Path) -> None:
    solved = solve_file(save(tmp_path, DRAWN, opset=18), 110, strategy="keep-all")
    kinds = [node.op_type for node in solved.rewriting.model.nodes]
    assert kinds.count("RandomUniformLike") == 2
    assert "Bernoulli" not in kinds
    assert [op.recomputable for op in solved.source.problem.graph.ops].count(False) == 2
    judgement = judge_trial(solved, run(solved, ("scheduled", "default-no-pattern")))
    assert judgement.failures == ()


@pytest.mark.parametrize(
    ("text", "found"), [(CURVED, True), (CURVED.replace("double", "float"), False)]
)
def test_an_op_of_doubles_without_a_kernel_is_noted(text: str, found: bool, tmp_path: Path) -> None:
    model = read_model(save(tmp_path, text), {})
    assert find_bodied(model) == ("Softsign 'making b'" if found else None)
    solved = solve_file(tmp_path / "model.onnx", 101, fences="none", strategy="keep-all")
    noted = [line for line in list_doubts(solved.source) if "Softsign" in line]
    assert bool(noted) == found
    rows = judge_trial(solved, run(solved, ("scheduled",))).rows
    assert rows[0].order == ("different" if found else "as scheduled")


def test_its_body_is_planned_with_the_optimizer(tmp_path: Path) -> None:
    solved = solve_file(
        save(tmp_path, CURVED), 101, fences="none", strategy="keep-all", optimize="basic"
    )
    assert "Softsign" not in {node.op_type for node in solved.rewriting.model.nodes}
    assert not [line for line in list_doubts(solved.source) if "Softsign" in line]
    assert judge_trial(solved, run(solved, ("scheduled",))).failures == ()
