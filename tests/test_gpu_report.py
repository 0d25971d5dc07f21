"""The verdicts of the GPU check, and what becomes of steps that take too long."""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnx_models import save

ROOT = Path(__file__).parent.parent
SOLVED = {
    "budget_nbytes": 1100,
    "peak_nbytes": 1000,
    "baseline_peak_nbytes": 2000,
    "time_ns": 500,
    "baseline_time_ns": 400,
}
CHECKED = {
    "measured_peak_nbytes": 1010,
    "measured_baseline_peak_nbytes": 2000,
    "measured_time_ns": 520,
    "measured_baseline_time_ns": 400,
    "runs": [{"options": "scheduled", "outputs": "equal"}],
    "order_equal": True,
    "arena": None,
}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what imports a file of `bench`, of which no type is known here."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    return importlib.import_module


def test_one_element_that_differs_fails_dropout(bench: Any) -> None:
    first = np.array([0, 2, 0, 2], np.float32)
    copy = np.array([0, 2, 2, 2], np.float32)
    checks = list(bench("gpu_numbers").judge_dropouts(first, copy))
    assert [(check.measured, check.verdict) for check in checks] == [(1, "fail"), (0.5, "pass")]


def test_a_peak_two_percent_off_holds_and_one_further_off_does_not(bench: Any) -> None:
    judge_check = bench("gpu_commands").judge_check
    far = CHECKED | {"measured_peak_nbytes": 1050}
    verdicts = [
        {check.what: check.verdict for check in judge_check(document, SOLVED, "cuda")}
        for document in (CHECKED, far)
    ]
    assert "fail" not in verdicts[0].values()
    failed = [what for what, verdict in verdicts[1].items() if verdict == "fail"]
    assert failed == ["predicted / measured peak, rewritten"]


def test_times_are_judged_on_cuda_alone(bench: Any) -> None:
    judge_check = bench("gpu_commands").judge_check
    slow = CHECKED | {"measured_time_ns": 600}
    what = "predicted / measured time, rewritten"
    found = {
        provider: next(c.verdict for c in judge_check(slow, SOLVED, provider) if c.what == what)
        for provider in ("cpu", "cuda")
    }
    assert found == {"cpu": "reported", "cuda": "fail"}


def test_a_peak_that_nothing_measures_is_reported(bench: Any) -> None:
    blind = CHECKED | {"measured_peak_nbytes": None}
    verdicts = [c.verdict for c in bench("gpu_commands").judge_check(blind, SOLVED, "cuda")]
    assert verdicts.count("reported") == 3


@pytest.mark.parametrize(
    ("outputs", "varying", "verdict"),
    [
        ("equal", [], "pass"),
        ("rounded", [], "fail"),
        ("rounded", ["y"], "pass"),
        ("different", ["y"], "fail"),
    ],
)
def test_outputs_may_be_rounded_where_the_original_varies(
    outputs: str, varying: list[str], verdict: str, bench: Any
) -> None:
    runs = [{"options": "scheduled", "outputs": word} for word in ("equal", outputs)]
    document = CHECKED | {"runs": runs, "outputs_varying": varying}
    found = {c.what: c.verdict for c in bench("gpu_commands").judge_check(document, SOLVED, "cpu")}
    assert found["outputs of the rewritten graph"] == verdict


def test_a_step_that_takes_too_long_is_cut_off_and_listed(bench: Any) -> None:
    report = bench("gpu_report").Report(total_s=60, step_s=0.1)
    report.do("g", "hangs", lambda: time.sleep(30))
    assert (report.passed, report.exit_code) == (None, 3)
    assert [row["passed"] for row in report.rows] == [None]
    assert [step["step"] for step in report.skipped] == ["hangs"]
    assert report.rows[0]["seconds"] < 5


def test_no_step_starts_without_time(bench: Any) -> None:
    report = bench("gpu_report").Report(total_s=0, step_s=60)
    report.do("g", "late", lambda: pytest.fail("it started"))
    assert (report.rows, report.exit_code) == ([], 3)
    assert report.skipped == [{"graph": "g", "step": "late", "why": "no time was left"}]


def test_a_check_that_fails_is_a_failure_beside_skipped_steps(bench: Any) -> None:
    reports = bench("gpu_report")
    report = reports.Report(60, 60)
    check = reports.judge("what", 1, "2", holds=False)
    report.do("g", "wrong", lambda: reports.Findings({"figure": 1}, (check,)))
    report.skip("g", "other", "why")
    assert (report.passed, report.exit_code) == (False, 1)
    expected = {"what": "what", "measured": 1, "allowed": "2", "verdict": "fail"}
    assert report.rows[0]["checks"] == [expected]


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
def test_a_command_that_is_cut_off_leaves_no_child(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    # Seconds for each run of its op, of which one task makes several.
    wide = "g (float[N, 2048] x, float[2048, 2048] w) => (float[N, 2048] y) { y = MatMul (x, w) }"
    asked = ("profile", str(save(tmp_path, wide)), "--dim", "N=16384", "--provider", "cpu")
    also = ("--optimize", "none", "-o", str(tmp_path / "costs.json"))
    report, run = bench("gpu_report").Report(60, 2.5), bench("gpu_commands").run_command
    report.do("wide", "profile", lambda: run((*asked, *also), tmp_path))
    assert report.rows[0]["passed"] is None
    running = [p.read_bytes() for p in Path("/proc").glob("[0-9]*/cmdline")]
    assert not [line for line in running if str(tmp_path).encode() in line]
