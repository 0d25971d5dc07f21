"""Runs on CUDA of which onnxruntime moves some nodes to the CPU: the order of the others counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from checkmate.cli.verdicts import print_trial
from checkmate.runtime.execute import RunResult
from checkmate.trial.runs import Trial, compare_order
from onnx_models import deep_mlp, save
from trials import Solved, judge_trial, run, solve_file

TEXT = """
g (float[64, 64] x) => (float[64, 64] y, float[64, 64] z) {
    [a] a = Exp(x) [b] b = Sin(a) [c] c = Cos(a) [d] y = Exp(c) [e] z = Add(b, c)
}
"""


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Solved:
    path = save(tmp_path_factory.mktemp("late"), TEXT)
    return solve_file(path, 101, fences="none", strategy="keep-all")


@pytest.fixture(scope="module")
def trial(solved: Solved) -> Trial:
    return run(solved, ("scheduled",))


def run_late(trial: Trial, *names: str) -> RunResult:
    """Return the run of ``trial`` as if ``names`` had been run last, on the CPU."""
    result = trial.pairs[0].rewritten
    executed = tuple(name for name in result.executed if name not in names)
    return replace(result, executed=(*executed, "Memcpy_1", *names), fallback=names)


def test_what_ran_on_the_cpu_is_left_out_and_counted(solved: Solved, trial: Trial) -> None:
    late = run_late(trial, "b")
    on_cuda = compare_order(solved.rewriting, "scheduled", "cuda", late)
    assert (on_cuda.misplaced, on_cuda.n_elsewhere) == ((), 1)
    on_cpu = compare_order(solved.rewriting, "scheduled", "cpu", late)
    assert on_cpu.misplaced[0] == ("b", "c")
    assert on_cpu.n_elsewhere == 0


def test_the_order_of_the_others_is_judged(solved: Solved, trial: Trial) -> None:
    late = replace(run_late(trial, "b", "c"), fallback=("b",))
    order = compare_order(solved.rewriting, "scheduled", "cuda", late)
    assert order.misplaced[0] == ("c", "d")


def test_under_default_options_too(solved: Solved, trial: Trial) -> None:
    late = run_late(trial, "b")
    order = compare_order(solved.rewriting, "default", "cuda", late)
    assert (order.misplaced, order.n_elsewhere, order.n_fused) == ((), 1, 0)
    assert compare_order(solved.rewriting, "default", "cpu", late).misplaced == (("b", "e"),)


def test_in_windows_between_fences_too(tmp_path: Path) -> None:
    solved = solve_file(
        save(tmp_path, deep_mlp(6)), 80, fences="run", strategy="greedy", dims={"N": 512}
    )
    trial = run(solved, ("default-no-pattern",))
    first = next(n for n in trial.pairs[0].rewritten.executed if n.startswith("MatMul"))
    late = run_late(trial, first)
    on_cuda = compare_order(solved.rewriting, "default-no-pattern", "cuda", late)
    assert (on_cuda.misplaced, on_cuda.n_elsewhere) == ((), 1)
    assert compare_order(solved.rewriting, "default-no-pattern", "cpu", late).misplaced


def test_the_report_says_how_many_were_left_out(
    solved: Solved, trial: Trial, capsys: pytest.CaptureFixture[str]
) -> None:
    order = compare_order(solved.rewriting, "scheduled", "cuda", run_late(trial, "b"))
    pairs = tuple(replace(pair, order=order) for pair in trial.pairs)
    found = replace(trial, pairs=pairs)
    judgement = judge_trial(solved, found)
    assert judgement.rows[0].order == "as scheduled"
    print_trial(found, judgement, solved.record)
    assert "the order is judged without 1 node that ran on the CPU" in capsys.readouterr().err
