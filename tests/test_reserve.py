"""Plans leave room for what their fences add, or say that there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkmate.engine.reserve import NoRoomError, solve_with_room
from checkmate.engine.solve import run_baseline, solve
from checkmate.formats.schedule_json import read_schedule
from checkmate.search.finding import Limits
from onnx_models import DEEP_MLP, deep_mlp, save
from test_cli import checkmate
from trials import solve_file

PAIR = "g (float[64, 64] x) => (float[64, 64] y) { a = Exp(x) y = Exp(a) }"
DIMS = {"N": 512}


def test_a_budget_without_room_for_fences_gets_none_of_its_own_accord(tmp_path: Path) -> None:
    path = save(tmp_path, PAIR)
    assert solve_file(path, 100, fences="auto").rewriting.fences == "none"
    assert solve_file(path, 110, fences="auto").rewriting.fences == "all"
    with pytest.raises(NoRoomError, match="leaves room for its fences in 49,152 B") as caught:
        solve_file(path, 100, fences="all")
    assert caught.value.exit_code == 5
    assert "or use --fences none" in str(caught.value.hint)


def test_what_fences_take_is_left_to_them(tmp_path: Path) -> None:
    problem = solve_file(save(tmp_path, deep_mlp(4)), 95, dims=DIMS).source.problem
    whole = solve(problem, run_baseline(problem).peak.nbytes, "exact", Limits())
    budget_nbytes = whole.peak.nbytes
    room_nbytes = 100

    def find_need(schedule: object) -> int:
        return budget_nbytes + room_nbytes if schedule == whole.schedule else 0

    plan = solve_with_room(problem, budget_nbytes, "exact", Limits(), find_need)
    assert plan.peak.nbytes <= budget_nbytes - room_nbytes
    assert plan.budget_nbytes == budget_nbytes
    # What was proved with all of the budget, not with less.
    assert plan.claim.bound_ns == whole.claim.bound_ns < plan.time_ns


def test_the_smallest_budget_has_room_for_its_fences(tmp_path: Path) -> None:
    save(tmp_path, DEEP_MLP)
    asked = ("model.onnx", "--dim", "N=64", "--budget", "min", "--costs", "flops")
    done = checkmate("solve", *asked, "--node-limit", "5", "-o", "s.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    record = read_schedule(tmp_path / "s.json")
    assert f"known to work is {record.budget_nbytes:,} B" in done.stderr
    assert record.runtime["fences"] == "all"
    assert record.peak_nbytes < record.budget_nbytes
