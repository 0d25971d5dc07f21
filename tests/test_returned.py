"""Weights that are graph outputs: each run copies them when it begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkmate.onnxio.digest import digest_model
from checkmate.onnxio.read import read_model
from checkmate.simulate import simulate
from onnx_models import save
from trials import judge_trial, run, solve_file

ONES = ", ".join(["1.0"] * 4096)
WEIGHT = f"float[4096] w = {{{ONES}}}"
ENDS = "returning (float[64, 4096] x) => (float y, float[4096] w)"
STEPS = "a = Exp(x) b = Neg(a) c = Add(b, w) y = ReduceSum <keepdims = 0> (c)"
KINDS = {
    "initializer": f"{ENDS} <{WEIGHT}> {{ {STEPS} }}",
    "constant": f"{ENDS} {{ w = Constant <value = {WEIGHT.replace(' w', '')}> () {STEPS} }}",
    "unread": f"{ENDS} <{WEIGHT}> {{ {STEPS.replace('Add(b, w)', 'Add(b, a)')} }}",
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_copy_is_planned_to_the_byte(kind: str, tmp_path: Path) -> None:
    solved = solve_file(save(tmp_path, KINDS[kind]), 100, fences="none", arena=True)
    peak_nbytes = simulate(solved.source.problem, solved.plan.schedule).peak.nbytes
    assert solved.source.problem.graph.resident_nbytes == (64 + 2) * 4096 * 4
    trial = run(solved, ("scheduled",))
    assert trial.pairs[0].rewritten.peak_nbytes == peak_nbytes
    judgement = judge_trial(solved, trial)
    assert judgement.failures == ()
    # The limit leaves room for the copy, and for nothing more than chunks are rounded by.
    assert trial.proof is not None
    assert trial.proof.is_planned
    assert trial.proof.refusal is None


def test_the_copy_is_no_part_of_the_digest_and_has_a_name_of_its_own(tmp_path: Path) -> None:
    text = KINDS["initializer"].replace(" a", " w__returned").replace("(a", "(w__returned")
    model = read_model(save(tmp_path, text), {})
    held = [tensor.name for tensor in model.graph.tensors if tensor.producer is None]
    assert held == ["x", "w", "w__returned_"]
    assert "w__returned_" not in model.types
    assert len(digest_model(model)) == 64
