"""Chains of Casts, of which onnxruntime leaves out those without which nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkmate.onnxio.read import read_model
from checkmate.trial.order import compare_exactly
from checkmate.trial.rewriting import Rewriting
from default_runs import schedule_of
from onnx_models import save
from trials import judge_trial, run, solve_file

CHAINS = {
    "there and back": ("float", "b = Cast <to = 11> (a) c = Cast <to = 1> (b)", 2),
    "twice the same": ("float", "b = Cast <to = 11> (a) c = Cast <to = 11> (b)", 1),
    "with a loss": ("double", "b = Cast <to = 1> (a) c = Cast <to = 11> (b)", 0),
}
"""Type of what is given, Casts, and how many of these do not run."""


def text_of(chain: str) -> str:
    given, casts, _ = CHAINS[chain]
    made = "double" if chain != "there and back" else "float"
    return f"""g ({given}[64, 64] x) => ({made}[64, 64] y, {given} z) {{
        a = Exp(x) {casts} d = Neg(c) y = Exp(d) z = ReduceSum <keepdims = 0> (a)
    }}"""


@pytest.mark.parametrize("chain", CHAINS)
def test_what_is_left_out_is_no_other_order_and_takes_no_more(chain: str, tmp_path: Path) -> None:
    solved = solve_file(save(tmp_path, text_of(chain)), 101, fences="none", strategy="keep-all")
    trial = run(solved, ("scheduled",))
    judgement = judge_trial(solved, trial)
    assert judgement.failures == ()
    assert judgement.rows[0].order == "as scheduled"
    assert trial.pairs[0].order.n_left_out == CHAINS[chain][2]
    with_fences = solve_file(tmp_path / "model.onnx", 110, strategy="keep-all")
    assert judge_trial(with_fences, run(with_fences)).failures == ()


def test_what_is_missing_for_no_such_reason_is_told(tmp_path: Path) -> None:
    text = text_of("there and back").replace(
        "c = Cast <to = 1> (b)", "e = Exp(b) c = Cast <to = 1> (e)"
    )
    model = read_model(save(tmp_path, text), {})
    rewriting = Rewriting(model, schedule_of(model, "a b e c d y z"), "none")
    names = [op.name for op in model.graph.ops]
    assert compare_exactly(rewriting, tuple(names)).misplaced == ()
    without_cast = compare_exactly(rewriting, tuple(names[:3] + names[4:]))
    assert without_cast.misplaced[0] == (names[3], names[4])
    assert without_cast.n_left_out == 0
    without_exp = compare_exactly(rewriting, tuple(names[:2] + names[3:]))
    assert without_exp.misplaced[0] == (names[2], names[3])
