"""Names that two things have, of which each needs its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from checkmate.cli.drift import check_drift
from checkmate.graph import OpId
from checkmate.liveness import insert_frees
from checkmate.onnxio.names import find_names, find_namesake, part_bodies
from checkmate.onnxio.read import read_model
from checkmate.onnxio.rewrite import rewrite_model
from checkmate.onnxio.write import place_planned
from checkmate.trial.rewriting import Rewriting, write_pair
from onnx_models import save
from test_cli import checkmate

SHADOWED = """
g (float[2, 4] x, float[4, 4] w) => (float[2, 4] y, float[2, 4] z) <int64 n = {3}> {
    y = Loop (n, "", x) <body = b (int64 i, bool c, float[2, 4] v)
      => (bool d, float[2, 4] u) { d = Identity(c) t = MatMul(v, w) u = Tanh(t) }>
    t = Exp(x)
    u = Exp(t)
    z = Sin(u)
}"""
CAPTURED = """
g (float[2, 4] x, bool c) => (float[2, 4] y) {
    a = Exp(x)
    h = Sin(a)
    b = If (c) <
        then_branch = t () => (float[2, 4] p) { a__recompute1 = Neg(h) p = Add(a__recompute1, a) },
        else_branch = e () => (float[2, 4] q) { q = Mul(a, h) }
    >
    y = Add(b, a)
}"""


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    content = model.SerializeToString()
    return onnxruntime.InferenceSession(content, options).run(None, feeds)


def test_a_body_may_have_the_names_of_tensors_that_a_schedule_puts_before_it(
    tmp_path: Path,
) -> None:
    path = save(tmp_path, SHADOWED)
    model = read_model(path, {})
    schedule = insert_frees(model.graph, [OpId(i) for i in (1, 2, 3, 0)])
    feeds = {"x": np.full((2, 4), 0.5, "f4"), "w": np.full((4, 4), 0.25, "f4")}
    expected = run(onnx.load(path), feeds)
    outputs = run(rewrite_model(model, schedule), feeds)
    assert all(map(np.array_equal, outputs, expected))


@pytest.mark.parametrize("condition", [True, False])
def test_a_copy_has_no_name_that_a_body_has(tmp_path: Path, condition: bool) -> None:
    path = save(tmp_path, CAPTURED)
    model = read_model(path, {})
    schedule = insert_frees(model.graph, [OpId(i) for i in (0, 1, 0, 2, 3)])
    feeds = {"x": np.full((2, 4), 0.5, "f4"), "c": np.array(condition)}
    expected = run(onnx.load(path), feeds)
    outputs = run(rewrite_model(model, schedule), feeds)
    assert all(map(np.array_equal, outputs, expected))


def test_bodies_within_bodies_are_parted_too() -> None:
    text = """<ir_version: 8, opset_import: ["" : 18]>
    g (float[4] x, bool c) => (float[4] y) {
        a = Exp(x)
        y = If (c) <
            then_branch = t () => (float[4] p) {
                p = If (c) <
                    then_branch = i () => (float[4] a) { a = Neg(x) },
                    else_branch = j () => (float[4] p) { p = Sin(a) }
                >
            },
            else_branch = e () => (float[4] a) { a = Sin(x) }
        >
    }"""
    proto = onnx.parser.parse_model(text)
    parted = part_bodies(proto)
    outer = parted.graph.node[1]
    names = [name for attribute in outer.attribute for name in sorted(find_names(attribute.g))]
    assert names == ["", "a", "a_inner1", "c", "p", "p_inner1", "x", "", "a_inner2", "x"]
    assert part_bodies(parted) is parted
    onnx.checker.check_model(parted, full_check=True)


NAMESAKES = """
g (float[2, 4] x, bool c) => (float[2, 4] y) {
    [n] a = Exp(x)
    [n] b = Sin(a)
    [] d = Cos(b)
    [] e = Sin(d)
    y = If (c) <
        then_branch = t () => (float[2, 4] p) { [m] o = Neg(e) [m] p = Exp(o) },
        else_branch = f () => (float[2, 4] q) { [n] q = Neg(e) }
    >
}"""


def test_a_model_of_nodes_with_one_name_is_planned_and_run_under_others(tmp_path: Path) -> None:
    path = save(tmp_path, NAMESAKES)
    feeds = {"x": np.full((2, 4), 0.5, "f4"), "c": np.array(True)}
    with pytest.raises(Exception, match=r"two nodes with same node name \([mn]\)"):
        run(onnx.load(path), feeds)
    model = read_model(path, {})
    assert model.namesake == "n"
    schedule = insert_frees(model.graph, [OpId(i) for i in (0, 1, 0, 2, 3, 4)])
    outputs = run(rewrite_model(model, schedule), feeds)
    with place_planned(model) as planned:
        assert all(map(np.array_equal, outputs, run(onnx.load(planned), feeds)))
    with write_pair(Rewriting(model, schedule, "none"), tmp_path) as files:
        assert all(map(np.array_equal, outputs, run(onnx.load(files.original), feeds)))


@pytest.mark.parametrize("op_type", ["Exp", "Constant"])
def test_names_of_constants_and_none_at_all_do_not_matter(op_type: str) -> None:
    nodes = [onnx.NodeProto(op_type=op_type, name="n"), onnx.NodeProto(op_type="Exp", name="n")]
    unnamed = [onnx.NodeProto(op_type="Exp"), onnx.NodeProto(op_type="Exp")]
    proto = onnx.ModelProto(graph=onnx.GraphProto(node=[*nodes, *unnamed]))
    assert find_namesake(proto) == ("n" if op_type == "Exp" else None)


@pytest.mark.parametrize("level", ["none", "basic"])
def test_a_shared_name_is_noted(level: str, tmp_path: Path) -> None:
    save(tmp_path, NAMESAKES)
    options = ("--budget", "4KiB", "--costs", "flops", "--optimize", level)
    done = checkmate("solve", "model.onnx", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("in which nodes share the name 'n'; in the rewritten model") == 1


def test_an_optimized_graph_is_not_compared_with_a_file_that_does_not_run(tmp_path: Path) -> None:
    model = read_model(save(tmp_path, NAMESAKES), {})
    assert check_drift(replace(model, is_optimized=True), "cpu") is None
