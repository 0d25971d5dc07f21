"""Graphs in which a fence could be lost, be refused, or change a number."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import onnx
import pytest

from checkmate.errors import InputError
from checkmate.onnxio.fence_maker import PREFIX
from checkmate.onnxio.fences import find_obstacle, parse_fences
from checkmate.onnxio.read import read_model
from checkmate.onnxio.windows import Fences
from default_runs import LEVELS, feeds_of, name_copies, rewrite, run
from onnx_models import save, save_proto


@dataclass(frozen=True)
class Pitfall:
    """Nodes behind the recompute of ``big``; without fences onnxruntime runs it before ``y``."""

    nodes: str
    order: str
    """What the nodes make, in order."""
    inputs: str = ""
    outputs: str = "float z"
    initializers: str = "int64[1] unused = {0}"
    floating: str = ""
    """Tensors whose nodes a fence cannot or need not hold back."""
    opset: int = 18


PITFALLS = {
    "Reshape": Pitfall(
        "view = Reshape(early, shape) late = Exp(view) z = ReduceSum <keepdims = 0> (late)",
        "view late z", initializers="int64[3] shape = {2, 4, 8}", floating="view",
    ),
    "Reshape of a Reshape": Pitfall(
        "half = Reshape(early, shape) view = Reshape(half, other) late = Exp(view)"
        " z = ReduceSum <keepdims = 0> (late)",
        "half view late z", floating="half view",
        initializers="int64[3] shape = {2, 4, 8}, int64[2] other = {8, 8}",
    ),
    "Unsqueeze and Squeeze": Pitfall(
        "half = Unsqueeze(early, axis) view = Squeeze(half, axis) late = Exp(view)"
        " z = ReduceSum <keepdims = 0> (late)",
        "half view late z", initializers="int64[1] axis = {0}", floating="half view",
    ),
    "Flatten": Pitfall(
        "view = Flatten <axis = 0> (early) late = Exp(view) z = ReduceSum <keepdims = 0> (late)",
        "view late z", floating="view",
    ),
    "two readers of a view": Pitfall(
        "view = Reshape(early, shape) late = Exp(view) more = Cos(view) z = Add(late, more)",
        "view late more z", initializers="int64[3] shape = {2, 4, 8}", floating="view",
        outputs="float[2, 4, 8] z",
    ),
    "a view at the very end": Pitfall(
        "z = Reshape(early, shape)", "z",
        initializers="int64[3] shape = {2, 4, 8}", floating="z", outputs="float[2, 4, 8] z",
    ),
    "a scalar": Pitfall("late = Exp(k) z = Mul(late, late)", "late z", inputs=", float k"),
    "booleans": Pitfall(
        "late = Not(k) z = And(late, k)", "late z", inputs=", bool[3] k", outputs="bool[3] z"
    ),
    "integers": Pitfall(
        "late = Add(k, k) z = Mul(late, k)", "late z",
        inputs=", int64[2, 3] k", outputs="int64[2, 3] z",
    ),
    "doubles": Pitfall(
        "late = Sqrt(k) z = Mul(late, k)", "late z",
        inputs=", double[3] k", outputs="double[3] z",
    ),
    "half floats": Pitfall(
        "late = Cast <to = 1> (k) z = Mul(late, late)", "late z",
        inputs=", float16[3] k", outputs="float[3] z",
    ),
    "no elements": Pitfall(
        "late = Exp(k) z = ReduceSum <keepdims = 0> (late)", "late z", inputs=", float[0, 3] k"
    ),
    "several outputs": Pitfall(
        "late, rest = Split <axis = 0, num_outputs = 2> (early)"
        " z = ReduceSum <keepdims = 0> (late)",
        "late z",
    ),
    "initializers alone": Pitfall(
        "late = Exp(k) z = ReduceSum <keepdims = 0> (late)",
        "late z", initializers="float[2, 2] k = {1, 2, 3, 4}",
    ),
    "a constant shape": Pitfall(
        "late = ConstantOfShape <value = float[1] {3.0}> (shape)"
        " z = ReduceSum <keepdims = 0> (late)",
        "late z", initializers="int64[2] shape = {4, 5}",
    ),
    "a shape of its own": Pitfall(
        "size = Shape(early) late = ConstantOfShape <value = float[1] {3.0}> (size)"
        " z = ReduceSum <keepdims = 0> (late)",
        "size late z", floating="size",
    ),
    "no inputs": Pitfall(
        "late = RandomNormal <seed = 1.0, shape = [64]> () more = Add(late, early)"
        " z = ReduceSum <keepdims = 0> (more)",
        "late more z", floating="late",
    ),
    "control flow": Pitfall(
        """late = If (k) <
            then_branch = t () => (float[64] p) { p = Add(early, big) },
            else_branch = e () => (float[64] q) { q = Mul(early, big) }
        >
        z = ReduceSum <keepdims = 0> (late)""",
        "late z", inputs=", bool k",
    ),
    "a scan": Pitfall(
        """late = Scan <
            num_scan_inputs = 1,
            body = b (float[64] p, float[64] s) => (float[64] q) { q = Add(p, s) }
        > (early, k)
        z = ReduceSum <keepdims = 0> (late)""",
        "late z",
        inputs=", float[3, 64] k",
    ),
    "Size, Max and Mul of its own": Pitfall(
        "size = Size(early) late = Max(size, two) more = Mul(late, one)"
        " z = Reshape(early, more)",
        "size late more z",
        outputs="float[64] z",
        floating="late more z",
        initializers="int64 two = {2}, int64[1] one = {1}",
    ),
    "names that are taken": Pitfall(
        f"{PREFIX}3_size = Exp(early) {PREFIX}3_reshape = Cos({PREFIX}3_size)"
        f" z = ReduceSum <keepdims = 0> ({PREFIX}3_reshape)",
        f"{PREFIX}3_size {PREFIX}3_reshape z",
    ),
    "opset 11": Pitfall(
        "late = Unsqueeze <axes = [0]> (early) more = Exp(late)"
        " z = ReduceSum <keepdims = 0> (more)",
        "late more z", opset=11, floating="late",
    ),
    "opset 9": Pitfall(
        "late = Exp(early) z = ReduceSum <keepdims = 0> (late)", "late z", opset=9
    ),
    "opset 12": Pitfall(
        "late = Exp(early) z = ReduceSum <keepdims = 0> (late)", "late z", opset=12
    ),
}  # fmt: skip


def save_pitfall(folder: Path, pitfall: Pitfall) -> tuple[Path, str]:
    """Write the graph, the type of every tensor included, as exporters do; return its schedule."""
    body = f"""
    pitfall (float[64] x{pitfall.inputs}) => (float y, float v, {pitfall.outputs}, float w)
      <{pitfall.initializers}> {{
        big = Exp(x)
        early = Relu(big)
        y = ReduceSum <keepdims = 0> (early)
        side = Cos(early)
        v = ReduceSum <keepdims = 0> (side)
        {pitfall.nodes}
        w = ReduceSum <keepdims = 0> (big)
    }}"""
    model = onnx.load(save(folder, body, opset=pitfall.opset))
    typed = onnx.shape_inference.infer_shapes(model, data_prop=True)
    return save_proto(folder, typed), f"big early y side v big {pitfall.order} w"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("pitfall", PITFALLS.values(), ids=PITFALLS)
def test_what_follows_a_recompute_stays_behind_it(
    pitfall: Pitfall, level: str, tmp_path: Path
) -> None:
    path, order = save_pitfall(tmp_path, pitfall)
    ran = run(rewrite(path, order, "run"), feeds_of(path), tmp_path, level)
    before = ["big", "early", "y", "side", "v"]
    held = [name for name in ran.executed if name not in pitfall.floating.split()]
    assert sorted(held[:5]) == sorted(before)


@pytest.mark.parametrize("pitfall", PITFALLS.values(), ids=PITFALLS)
def test_without_fences_the_recompute_runs_early(pitfall: Pitfall, tmp_path: Path) -> None:
    path, order = save_pitfall(tmp_path, pitfall)
    ran = run(rewrite(path, order, "none"), feeds_of(path), tmp_path)
    held = [name for name in ran.executed if name not in pitfall.floating.split()]
    assert "big__recompute1" in held[:5]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("pitfall", PITFALLS.values(), ids=PITFALLS)
def test_with_all_fences_the_executed_order_is_the_schedule(
    pitfall: Pitfall, level: str, tmp_path: Path
) -> None:
    path, order = save_pitfall(tmp_path, pitfall)
    ran = run(rewrite(path, order, "all"), feeds_of(path), tmp_path, level)
    early = "late" if "RandomNormal" in pitfall.nodes else ""
    planned = name_copies(order, without=f"size {early}")
    assert tuple(name for name in ran.executed if name != early) == planned


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("fences", ["run", "all"])
@pytest.mark.parametrize("pitfall", PITFALLS.values(), ids=PITFALLS)
def test_numbers_are_the_same_to_the_bit(
    pitfall: Pitfall, fences: Fences, level: str, tmp_path: Path
) -> None:
    path, order = save_pitfall(tmp_path, pitfall)
    feeds = feeds_of(path)
    before = run(path.read_bytes(), feeds, tmp_path, level)
    after = run(rewrite(path, order, fences), feeds, tmp_path, level)
    assert after.outputs == before.outputs


def test_an_older_opset_has_no_fences(tmp_path: Path) -> None:
    path = save(tmp_path, "g (float[4] x) => (float[4] y) { y = Relu(x) }", opset=8)
    obstacle = find_obstacle(read_model(path, {}))
    assert obstacle == "opset 8 has no integer constants, which fences need"
    with pytest.raises(InputError, match="no fences for this model: opset 8"):
        rewrite(path, "y", "run")


def test_a_choice_of_fences_that_is_not_known_is_refused() -> None:
    assert parse_fences("all") == "all"
    with pytest.raises(InputError, match="fences 'some' are not known"):
        parse_fences("some")


@pytest.mark.parametrize(("fences", "n_types"), [("none", 5), ("run", 0), ("all", 0)])
def test_a_fenced_model_does_not_say_what_its_nodes_make(
    fences: Fences, n_types: int, tmp_path: Path
) -> None:
    path, order = save_pitfall(tmp_path, PITFALLS["Reshape"])
    graph = onnx.load_from_string(rewrite(path, order, fences)).graph
    assert len(graph.value_info) == n_types
