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
    noted = solve_bare(tmp_path, "1600B")
    assert noted.returncode == 0
    assert "leaves room for what its file adds: the written model needs 1,608 B" in noted.stderr
    assert "leaves room" not in solve_bare(tmp_path, "1608B").stderr
    smallest = solve_bare(tmp_path, "min")
    assert smallest.returncode == 0
    assert "with what its file adds: 1,608 B" in smallest.stderr


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        (("--budget", "100%"), "none"),
        (("--budget", "100%", "--no-arena"), "none"),
        (("--budget", "100%", "--fences", "all"), "all"),
        (("--budget", "100%", "--fences", "none"), "none"),
        (("--budget", "983809B"), "none"),
        (("--budget", "150%"), "all"),
    ],
)
def test_who_asks_for_no_reduction_gets_no_recompute(
    tmp_path: Path, options: tuple[str, ...], chosen: str
) -> None:
    save(tmp_path, WIDE)
    solve = ("solve", "model.onnx", "--costs", "flops", "-o", "s.json")
    solved = checkmate(*solve, *options, cwd=tmp_path)
    assert solved.returncode == 0, solved.stderr
    document = json.loads((tmp_path / "s.json").read_text())
    assert document["time_ns"] == document["baseline_time_ns"]
    assert document["runtime"]["fences"] == chosen
    assert ("no fences: the graph fits in the budget" in solved.stderr) == (
        chosen == "none" and "none" not in options
    )


def test_one_byte_less_than_the_graph_needs_is_a_reduction(tmp_path: Path) -> None:
    save(tmp_path, WIDE)
    solve = ("solve", "model.onnx", "--costs", "flops", "-o", "s.json", "--no-arena")
    solved = checkmate(*solve, "--budget", f"{find_peak(tmp_path) - 1}B", cwd=tmp_path)
    assert solved.returncode == 0, solved.stderr
    document = json.loads((tmp_path / "s.json").read_text())
    assert document["time_ns"] > document["baseline_time_ns"]
    assert document["runtime"]["fences"] == "all"


def find_peak(folder: Path) -> int:
    """Return the peak without recompute of the model in ``folder`` as it is optimized."""
    solve = (
        "solve",
        "model.onnx",
        "--costs",
        "flops",
        "--budget",
        "200%",
        "--json",
        "-o",
        "p.json",
    )
    peak_nbytes: int = json.loads(checkmate(*solve, cwd=folder).stdout)["baseline_peak_nbytes"]
    return peak_nbytes
