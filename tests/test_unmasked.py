"""Dropouts whose mask nobody reads, and random ops within bodies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from checkmate.onnxio.doubts import find_unmasked
from checkmate.onnxio.read import read_model
from checkmate.onnxio.seeding import is_random, render_seeded
from checkmate.runtime.optimize import optimize_model
from onnx_models import save
from test_cli import checkmate

KNOWN = "<float r = {0.5}, bool yes = {1}, bool no = {0}>"


def graph(body: str) -> str:
    return f"g (float[4, 8] x) => (float[4, 8] y) {KNOWN} {{ {body} }}"


UNREAD = graph("a = Exp(x) [drop] d, m = Dropout (a, r, yes) y = Neg(d)")
READ = graph("a = Exp(x) d, m = Dropout (a, r, yes) s = Cast <to = 1> (m) y = Mul(d, s)")
IDLE = graph("a = Exp(x) d, m = Dropout (a, r, no) y = Neg(d)")


@pytest.mark.parametrize(
    ("text", "found"), [(UNREAD, "Dropout 'drop'"), (READ, None), (IDLE, None)]
)
def test_a_dropout_that_drops_and_has_no_reader_of_its_mask_is_found(
    text: str, found: str | None, tmp_path: Path
) -> None:
    assert find_unmasked(read_model(save(tmp_path, text), {})) == found


@pytest.mark.parametrize(("text", "n_left"), [(UNREAD, 1), (READ, 1), (IDLE, 0)])
def test_optimization_takes_away_only_dropouts_that_drop_nothing(
    text: str, n_left: int, tmp_path: Path
) -> None:
    optimized = optimize_model(read_model(save(tmp_path, text), {}), "extended", "cpu").model
    assert [node.op_type for node in optimized.nodes].count("Dropout") == n_left


def test_onnxruntime_by_itself_takes_away_a_dropout_that_drops(tmp_path: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    onnxruntime.InferenceSession(save(tmp_path, UNREAD), options, ["CPUExecutionProvider"])
    nodes = onnx.load(options.optimized_model_filepath).graph.node
    assert [node.op_type for node in nodes] == ["Exp", "Neg"]


def test_a_dropout_that_default_options_may_leave_out_is_noted(tmp_path: Path) -> None:
    save(tmp_path, UNREAD)
    done = checkmate("solve", "model.onnx", "--budget", "4KiB", "--costs", "flops", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "may leave out Dropout 'drop', in the original graph too" in done.stderr


BRANCHES = """g (float[4, 8] x, bool c) => (float[4, 8] y) {
    a = If (c) <
        then_branch = t () => (float[4, 8] p) { p = RandomNormalLike (x) },
        else_branch = e () => (float[4, 8] q) { q = Exp (x) }
    >
    y = Add (a, x)
}"""


def test_random_ops_within_bodies_get_seeds(tmp_path: Path) -> None:
    model = read_model(save(tmp_path, BRANCHES), {})
    assert is_random(model)
    content = render_seeded(model.proto)
    feeds = {"x": np.ones((4, 8), "f4"), "c": np.array(True)}
    runs = [
        onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, feeds)
        for _ in range(2)
    ]
    assert np.array_equal(runs[0][0], runs[1][0])
