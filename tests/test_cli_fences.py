"""The choice of fences on the command line and in the schedule."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import onnx
import pytest

from checkmate.onnxio.fence_maker import PREFIX
from onnx_models import DEEP_MLP, save
from test_cli import checkmate

SOLVE = ("solve", "model.onnx", "--costs", "flops", "--budget", "95%", "-o", "s.json", "--onnx",
         "m.onnx")  # fmt: skip
WIDE = DEEP_MLP.replace("float[N, 64] x", "float[512, 64] x")


def count_fences(path: Path) -> int:
    nodes = onnx.load(path).graph.node
    return sum(node.name.startswith(PREFIX) and node.op_type == "Reshape" for node in nodes)


@pytest.mark.parametrize(
    ("options", "chosen"),
    [((), "all"), (("--fences", "run"), "run"), (("--fences", "all"), "all")],
)
def test_fences_are_written_and_checked(
    options: tuple[str, ...], chosen: str, tmp_path: Path
) -> None:
    save(tmp_path, WIDE)
    solved = checkmate(*SOLVE, *options, cwd=tmp_path)
    assert solved.returncode == 0, solved.stderr
    assert json.loads((tmp_path / "s.json").read_text())["runtime"]["fences"] == chosen
    assert count_fences(tmp_path / "m.onnx") > 0
    checked = checkmate(
        "check", "model.onnx", "s.json", "--run", "--json", "--tolerance", "75%", cwd=tmp_path
    )
    assert checked.returncode == 0, checked.stderr
    assert json.loads(checked.stdout)["order_equal"]


def test_without_fences_there_are_none(tmp_path: Path) -> None:
    save(tmp_path, WIDE)
    assert checkmate(*SOLVE, "--fences", "none", cwd=tmp_path).returncode == 0
    assert json.loads((tmp_path / "s.json").read_text())["runtime"]["fences"] == "none"
    assert count_fences(tmp_path / "m.onnx") == 0


def test_a_schedule_that_says_nothing_of_fences_has_none(tmp_path: Path) -> None:
    save(tmp_path, WIDE)
    checkmate(*SOLVE, "--fences", "none", cwd=tmp_path)
    schedule = tmp_path / "s.json"
    schedule.write_text(schedule.read_text().replace('"fences": "none", ', ""))
    checked = checkmate(
        "check", "model.onnx", "s.json", "--run", "--tolerance", "75%", cwd=tmp_path
    )
    assert checked.returncode == 0, checked.stderr


def test_a_schedule_with_unknown_fences_is_refused(tmp_path: Path) -> None:
    save(tmp_path, WIDE)
    checkmate(*SOLVE, cwd=tmp_path)
    schedule = tmp_path / "s.json"
    schedule.write_text(schedule.read_text().replace('"fences": "all"', '"fences": "high"'))
    checked = checkmate(
        "check", "model.onnx", "s.json", "--run", "--tolerance", "75%", cwd=tmp_path
    )
    assert checked.returncode == 3
    assert "fences 'high' are not known" in checked.stderr


def test_a_model_that_cannot_have_fences_gets_none_with_a_notice(tmp_path: Path) -> None:
    save(tmp_path, "g (float[64] x) => (float[64] y) { a = Relu(x) y = Exp(a) }", opset=8)
    done = checkmate(
        "solve", "model.onnx", "--costs", "flops", "--budget", "100%", "-o", "s.json", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "no fences: opset 8" in done.stderr
    assert json.loads((tmp_path / "s.json").read_text())["runtime"]["fences"] == "none"


UNREAD = "g (float[N] x) => (float[N] y) { a = Exp(x) b = Neg(a) c = Sin(a) y = Mul(c, a) }"


def solve_bare(folder: Path, budget: str) -> subprocess.CompletedProcess[str]:
    options = ("--optimize", "none", "--no-arena", "--fences", "none", "--dim", "N=100")
    return checkmate(
        "solve", "model.onnx", "--budget", budget, "--costs", "flops", *options, cwd=folder
    )


def test_what_a_file_adds_counts_without_fences_and_arena_too(tmp_path: Path) -> None:
    save(tmp_path, UNREAD)
    # What nobody reads of b is read by a Size of 8 bytes, which stays to the end.
    refused = solve_bare(tmp_path, "1600B")
    assert refused.returncode == 5
    assert "no schedule was found whose file runs within 1,600 B" in refused.stderr
    assert "the smallest budget known to work is 1,608 B" in refused.stderr
    assert solve_bare(tmp_path, "1608B").returncode == 0
    smallest = solve_bare(tmp_path, "min")
    assert smallest.returncode == 0
    assert "with what its file adds: 1,608 B" in smallest.stderr
