"""What ``show`` says of models, problems and schedules."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, cast

import onnx
import pytest

from builders import op, problem
from checkmate.formats.problem_json import render_problem
from onnx_models import DEEP_MLP, GRAPHS, save, save_proto
from test_cli import checkmate, solve_mlp

TINY = """
tiny (float[5, 8] x, float[8, 8] w, int64[4] y, float[8, 8] unused)
  => (float loss, float[8, 8] dw, float[8, 8] du)
  <float one = {1.0}> {
    h = MatMul(x, w)
    a = Tanh(h)
    loss = ReduceSum <keepdims = 0> (a)
    shape = Shape(a)
    d = ConstantOfShape <value = float[1] {1.0}> (shape)
    q = Mul(a, a)
    p = Sub(one, q)
    g = Mul(d, p)
    t = Transpose <perm = [1, 0]> (x)
    dw = MatMul(t, g)
    du = Sub(dw, dw)
}
"""
"""One layer; every number of it is counted by hand in the test below."""


def show(folder: Path, *arguments: str) -> dict[str, Any]:
    """Return the document that ``show`` prints."""
    done = checkmate("show", *arguments, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    return cast("dict[str, Any]", document)


def test_a_layer_is_counted_as_by_hand(tmp_path: Path) -> None:
    save(tmp_path, TINY)
    told = show(tmp_path, "model.onnx")
    # x 160, w 256, y 32, unused 256, one 4
    assert told["resident_nbytes"] == 708
    assert told["baseline_peak_op"] == "MatMul_9"
    assert told["baseline_peak_nbytes"] == 708 + 160 + 160 + 256 + 4
    peak = told["peak"]
    assert peak.pop("tensors") == [
        {"name": "dw", "nbytes": 256, "kind": "output", "made_by": "MatMul_9",
         "first_use": "Sub_10", "last_use": "Sub_10"},
        {"name": "g", "nbytes": 160, "kind": "gradient", "made_by": "Mul_7",
         "first_use": "MatMul_9", "last_use": "MatMul_9"},
        {"name": "t", "nbytes": 160, "kind": "activation", "made_by": "Transpose_8",
         "first_use": "MatMul_9", "last_use": "MatMul_9"},
        {"name": "loss", "nbytes": 4, "kind": "output", "made_by": "ReduceSum_3",
         "first_use": "", "last_use": ""},
    ]  # fmt: skip
    assert peak == {
        "position": 9, "resident_nbytes": 708, "activations_nbytes": 160, "gradients_nbytes": 160,
        "outputs_nbytes": 260, "workspace_nbytes": 0,
    }  # fmt: skip
    assert (told["saved_nbytes"], [saved["name"] for saved in told["saved"]]) == (160, ["a"])
    # The loss can wait; what the op reads and makes cannot.
    assert (told["bound_nbytes"], told["bound_op"]) == (1284, "MatMul_9")
    assert told["smallest_known_nbytes"] in (1284, 1288)


def test_inputs_are_told_apart_by_their_use(tmp_path: Path) -> None:
    save(tmp_path, TINY)
    kinds = {given["name"]: given["kind"] for given in show(tmp_path, "model.onnx")["given"]}
    assert kinds == {
        "x": "data", "w": "parameter", "y": "data", "unused": "parameter", "one": "constant",
    }  # fmt: skip


def test_phases_pins_and_views_of_a_file(tmp_path: Path) -> None:
    save(tmp_path, TINY)
    told = show(tmp_path, "model.onnx")
    assert (told["ops"], told["forward_ops"], told["backward_ops"]) == (11, 4, 7)
    assert (told["loss"], told["pinned"], told["views"]) == ("loss", [], 0)
    assert told["op_types"]["MatMul"] == 2
    assert told["file"] == {"ir_version": 8, "opsets": {"ai.onnx": 18}, "producer": ""}
    # Of du, all ops are ancestors but the one that makes the former loss.
    assert show(tmp_path, "model.onnx", "--loss", "du")["backward_ops"] == 1


SYMBOLIC = TINY.replace("[5, 8] x", "[N, 8] x").replace("[4] y", "[M] y")


def test_a_symbolic_model_is_shown_as_far_as_it_has_no_sizes(tmp_path: Path) -> None:
    save(tmp_path, SYMBOLIC)
    done = checkmate("show", "model.onnx", "--dim", "M=4", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "note: sizes and peaks need --dim N=VALUE" in done.stderr.splitlines()
    told = json.loads(done.stdout)
    assert told["dims"] == {"N": ["x"], "M": ["y"]}
    assert told["bound_dims"] == {"M": 4}
    assert told["missing_dims"] == ["N"]
    assert "baseline_peak_nbytes" not in told
    save(tmp_path, TINY)
    bound = show(tmp_path, "model.onnx")
    for same in ("ops", "forward_ops", "backward_ops", "op_types", "views", "pinned", "loss"):
        assert told[same] == bound[same]
    given = {given["name"]: given for given in told["given"]}
    assert (given["x"]["shape"], given["x"]["nbytes"]) == (["N", 8], None)
    assert (given["w"]["kind"], given["w"]["nbytes"]) == ("parameter", 256)
    assert [item["kind"] for item in told["given"]] == [item["kind"] for item in bound["given"]]


def test_a_bound_model_is_shown_with_its_dimensions(tmp_path: Path) -> None:
    save(tmp_path, SYMBOLIC)
    told = show(tmp_path, "model.onnx", "--dim", "M=4", "--dim", "N=5")
    assert (told["missing_dims"], told["baseline_peak_nbytes"]) == ([], 1288)
    # With as many samples as features, x has the shape of a gradient.
    square = show(tmp_path, "model.onnx", "--dim", "M=4", "--dim", "N=8")
    kinds = {given["name"]: given["kind"] for given in square["given"]}
    assert (kinds["x"], kinds["w"]) == ("data", "parameter")


def test_an_unknown_dimension_is_a_usage_error(tmp_path: Path) -> None:
    save(tmp_path, SYMBOLIC)
    assert checkmate("show", "model.onnx", "--dim", "K=4", cwd=tmp_path).returncode == 2


STRANGE = """
g (float[2] x) => (float[2] y, float loss) {
    a = Strange(x)
    y = Relu(a)
    loss = ReduceSum <keepdims = 0> (y)
}
"""


def test_what_cannot_be_understood_is_said_after_what_can(tmp_path: Path) -> None:
    save(tmp_path, STRANGE)
    done = checkmate("show", "model.onnx", "--json", cwd=tmp_path)
    assert done.returncode == 3
    assert done.stderr.startswith("g: 3 ops, 3 forward and 0 backward")
    assert "error: op Strange" in done.stderr
    told = json.loads(done.stdout)
    assert told["ops"] == 3
    assert "is not known to onnx" in told["notes"][-1]


PINNED = """
g (float[2, 3, 4] x, float[3] s, float[3] b, float[3] m, float[3] v, float[3] moment)
  => (float[2, 3, 4] z, float[3] p, float[3] q, float[3] new)
  <float half = {0.5}, bool yes = {1}> {
    n, p, q = BatchNormalization <training_mode = 1> (x, s, b, m, v)
    z, mask = Dropout (n, half, yes)
    once = RandomNormalLike (z)
    new = Add (moment, s)
}
"""


@pytest.mark.parametrize("dims", [(), ("--dim", "N=2")])
def test_pinned_ops_have_their_reason(tmp_path: Path, dims: tuple[str, ...]) -> None:
    text = PINNED.replace("[2, 3, 4] x", "[N, 3, 4] x")
    proto = onnx.load(save(tmp_path, text))
    for number, node in enumerate(proto.graph.node):
        node.name = f"op{number}"
    entry = proto.graph.node[3].metadata_props.add()
    entry.key, entry.value = "checkmate.phase", "optimizer"
    save_proto(tmp_path, proto)
    done = checkmate("show", "model.onnx", *dims, "--json", cwd=tmp_path)
    told = json.loads(done.stdout)
    assert told["pinned"] == [
        {"op": "op0", "reason": "running statistics"},
        {"op": "op1", "reason": "random"},
        {"op": "op2", "reason": "random"},
        {"op": "op3", "reason": "optimizer update"},
    ]
    assert told["pinned_ops"] == 4
    kinds = {given["name"]: given["kind"] for given in told["given"]}
    assert (kinds["s"], kinds["moment"], kinds["x"]) == ("parameter", "state", "data")
    assert "run only once, random: 2 ops (op1, op2)" in done.stderr


def test_a_problem_has_the_same_figures(tmp_path: Path) -> None:
    small = problem(
        op("f0", "x", nbytes=5),
        op("f1", "f0", nbytes=3, recomputable=False),
        op("loss", "f1", nbytes=1),
        op("b1", "loss f1 f0", nbytes=4, workspace_nbytes=7, backward=True),
        outputs="b1",
        resident={"x": 10},
    )
    (tmp_path / "p.json").write_text(render_problem(small))
    told = show(tmp_path, "p.json")
    assert (told["ops"], told["backward_ops"]) == (4, 1)
    assert told["pinned"] == [{"op": "f1", "reason": "the problem says so"}]
    assert (told["baseline_peak_nbytes"], told["baseline_peak_op"]) == (30, "b1")
    assert [saved["name"] for saved in told["saved"]] == ["f0", "f1", "loss"]
    assert (told["bound_nbytes"], told["bound_op"]) == (30, "b1")
    refused = checkmate("show", "p.json", "--costs", "flops", cwd=tmp_path)
    assert refused.returncode == 2


def test_a_page_fits_on_a_screen(tmp_path: Path) -> None:
    done = checkmate("show", str(GRAPHS / "resnet50-tiny-bN.onnx"), "--dim", "N=2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) <= 40
    table = done.stderr.split("in memory at the peak")[1].splitlines()
    assert max(map(len, table[1:])) <= 80


def test_measured_costs_bring_workspace_into_the_peak(tmp_path: Path) -> None:
    save(tmp_path, DEEP_MLP)
    given = ("model.onnx", "--optimize", "none", "--dim", "N=8")
    checkmate("profile", *given, "-o", "c.json", cwd=tmp_path)
    costs = json.loads((tmp_path / "c.json").read_text())
    for entry in costs["ops"]:
        entry["workspace_nbytes"] = 10**6 if entry["name"] == costs["ops"][3]["name"] else 0
    (tmp_path / "c.json").write_text(json.dumps(costs))
    told = show(tmp_path, "model.onnx", "--dim", "N=8", "--costs", "c.json")
    assert told["baseline_peak_op"] == costs["ops"][3]["name"]
    assert told["peak"]["workspace_nbytes"] == 10**6


def test_a_schedule_with_its_model_is_certified(tmp_path: Path) -> None:
    solve_mlp(tmp_path, "--budget", "95%", "-o", "s.json")
    done = checkmate("show", "s.json", "--model", "model.onnx", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "certified: peak and time" in done.stderr
    told = json.loads(done.stdout)
    assert told["certified"] == {
        "peak_nbytes": told["peak_nbytes"], "budget_nbytes": told["budget_nbytes"],
        "costs_verified": True,
    }  # fmt: skip


@pytest.mark.parametrize("field", ["time_ns", "peak_nbytes"])
def test_a_schedule_that_does_not_agree_with_its_model_is_told(tmp_path: Path, field: str) -> None:
    solve_mlp(tmp_path, "--budget", "95%", "-o", "s.json")
    document = json.loads((tmp_path / "s.json").read_text())
    document[field] += 1
    (tmp_path / "s.json").write_text(json.dumps(document))
    assert checkmate("show", "s.json", cwd=tmp_path).returncode == 0
    done = checkmate("show", "s.json", "--model", "model.onnx", cwd=tmp_path)
    assert done.returncode == 7
    assert f"the schedule states {field} {document[field]}" in done.stderr


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_refused_in_one_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    done = checkmate("show", "pipe", cwd=tmp_path)
    assert done.returncode == 3
    assert done.stderr.splitlines() == [
        "error: cannot read 'pipe': it is a pipe or a device, not a regular file",
        "hint: write it to a file first",
    ]
