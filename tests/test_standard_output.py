"""``solve -o -``."""

from __future__ import annotations

from pathlib import Path

from onnx_models import deep_mlp, save
from test_cli import checkmate

OPTIONS = ("--dim", "N=64", "--costs", "flops", "--optimize", "none", "--strategy", "greedy")


def test_a_dash_is_standard_output(tmp_path: Path) -> None:
    save(tmp_path, deep_mlp(3))
    solve = ("solve", "model.onnx", "--budget", "100GB", *OPTIONS)
    shown = checkmate(*solve, "-o", "-", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    written = checkmate(*solve, "-o", "s.json", cwd=tmp_path)
    assert written.returncode == 0, written.stderr
    assert shown.stdout == (tmp_path / "s.json").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "s.json"]


def test_standard_output_carries_one_document(tmp_path: Path) -> None:
    save(tmp_path, deep_mlp(3))
    solve = ("solve", "model.onnx", "--budget", "100GB", *OPTIONS)
    refused = checkmate(*solve, "-o", "-", "--json", cwd=tmp_path)
    assert refused.returncode == 2
    assert "--json and -o -" in refused.stderr
    assert refused.stdout == ""
