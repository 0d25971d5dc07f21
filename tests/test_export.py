"""Problem files written from models, and what is solved from them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from checkmate.cli.source import Asked, read_source
from checkmate.formats.problem_json import read_problem
from onnx_models import DEEP_MLP, GRAPHS, save
from test_cli import checkmate

UNET = GRAPHS / "unet-tiny-bN.onnx"
OPTIONS = ("--optimize", "none", "--dim", "N=4", "--costs", "flops")


def test_an_export_holds_what_a_search_sees_of_the_model(tmp_path: Path) -> None:
    done = checkmate("export", str(UNET), *OPTIONS, "-o", "p.json", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    original = read_source(UNET, Asked({"N": 4}, costs="flops")).problem
    exported = read_problem(tmp_path / "p.json")
    assert exported.graph == original.graph
    assert exported.costs.time_ns == original.costs.time_ns
    assert exported.costs.workspace_nbytes == original.costs.workspace_nbytes
    assert any(tensor.source is not None for tensor in exported.graph.tensors)
    assert any(op.backward for op in exported.graph.ops)
    document = json.loads(done.stdout)
    assert document["graph"]["ops"] == len(original.graph.ops)
    assert document["files"] == {"problem": "p.json"}


def test_an_export_is_solved_shown_and_compared_like_its_model(tmp_path: Path) -> None:
    checkmate("export", str(UNET), *OPTIONS, "-o", "p.json", cwd=tmp_path)
    asked = ("--budget", "80%", "--strategy", "greedy", "--json")
    from_model = checkmate(
        "solve", str(UNET), *OPTIONS, *asked, "--no-arena", "-o", "m", cwd=tmp_path
    )
    from_problem = checkmate("solve", "p.json", *asked, "-o", "p", cwd=tmp_path)
    compared = checkmate("compare", "p.json", *asked, cwd=tmp_path)
    shown = checkmate("show", "p.json", "--json", cwd=tmp_path)
    model, other = json.loads(from_model.stdout), json.loads(from_problem.stdout)
    same = ("time_ns", "peak_nbytes", "baseline_peak_nbytes", "bound_ns", "peak")
    assert [model[key] for key in same] == [other[key] for key in same]
    row = json.loads(compared.stdout)["strategies"][0]
    assert row["time_ns"] == model["time_ns"] > model["baseline_time_ns"]
    assert json.loads(shown.stdout)["baseline_peak_nbytes"] == model["baseline_peak_nbytes"]


def test_a_schedule_of_an_export_is_for_its_model_too(tmp_path: Path) -> None:
    save(tmp_path, DEEP_MLP.replace("[N, ", "[512, "))
    export = ("export", "model.onnx", "--optimize", "none", "--costs", "flops", "-o", "p.json")
    assert checkmate(*export, cwd=tmp_path).returncode == 0
    solved = checkmate("solve", "p.json", "--budget", "95%", "-o", "s.json", cwd=tmp_path)
    assert solved.returncode == 0, solved.stderr
    checked = checkmate("check", "model.onnx", "s.json", cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("output", ["model.onnx", "costs.json"])
def test_an_export_destroys_no_input(output: str, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(UNET.read_bytes())
    (tmp_path / "costs.json").write_text("{}")
    asked = ("export", "model.onnx", "--dim", "N=4", "--costs", "costs.json", "-o", output)
    done = checkmate(*asked, cwd=tmp_path)
    assert done.returncode == 2
    assert f"is the input {output!r}" in done.stderr
    assert (tmp_path / "model.onnx").read_bytes() == UNET.read_bytes()
