"""Shapes that a file states are known to nobody who could keep memory for them."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import onnx
import pytest

from checkmate.onnxio.fence_maker import FenceMaker
from checkmate.onnxio.hiding import hide_inputs
from default_runs import count_ops, rewrite
from onnx_models import deep_mlp, save, save_proto
from trials import judge_trial, run, solve_file

STATED = """training (float[512, 64] x, float[512, 64] k, bool[512, 64] mask) => (float y, float z)
<int64[2] stated = {512, 64}, float one = {1.0}> {
a = Add(x, k) MAKE c = Exp(b) d = Where(mask, c, one)
y = ReduceSum <keepdims = 0> (d) e = Cos(d) z = ReduceSum <keepdims = 0> (e) }"""


@pytest.mark.parametrize(
    "make",
    [
        "b = Mul(a, k)",
        "b = Reshape(a, stated)",
        "b = Expand(a, stated)",
        "f = ConstantOfShape(stated) b = Mul(a, f)",
    ],
)
def test_no_shape_of_a_tensor_is_known_before_the_run(make: str, tmp_path: Path) -> None:
    path = save(tmp_path, STATED.replace("MAKE", make))
    made = " ".join(re.findall(r"(\w+) =(?! \{)", make))
    content = rewrite(path, f"a {made} c d y a {made} c d e z", "all")
    inferred = onnx.shape_inference.infer_shapes(onnx.load_from_string(content)).graph
    shapes = [info.type.tensor_type.shape.dim for info in inferred.value_info]
    sizes = [math.prod(dim.dim_value for dim in shape) for shape in shapes]
    assert len(sizes) > 10
    assert max(sizes) <= 2


def test_the_planned_peak_holds_by_default_where_the_file_states_all_shapes(
    tmp_path: Path,
) -> None:
    path = save(tmp_path, deep_mlp(6).replace("float[N, ", "float[512, "))
    solved = solve_file(path, 80)
    judgement = judge_trial(solved, run(solved, ("scheduled", "default-no-pattern")))
    assert judgement.failures == ()


def hide(text: str, inputs: dict[str, tuple[int, ...]]) -> list[onnx.NodeProto]:
    nodes = list(onnx.parser.parse_graph(f"g (float[2, 3] x) => (y) {{ {text} }}").node)
    hide_inputs(nodes, inputs, FenceMaker(set(), 18))
    return nodes


def test_views_and_shapes_read_inputs_as_they_are() -> None:
    nodes = hide("s = Shape(x) v = Flatten(x) y = Exp(x)", {"x": (2, 3)})
    assert [node.input[0] == "x" for node in nodes] == [True, True, False]


def test_operators_of_unknown_domains_read_inputs_as_they_are() -> None:
    assert list(hide("y = ai.test.Accumulate(x)", {"x": (2, 3)})[0].input) == ["x"]


def test_scalars_stay() -> None:
    assert list(hide("y = Exp(x)", {"x": ()})[0].input) == ["x"]


def test_weights_that_are_constants_are_copied_into_no_other_layout(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]>
        training (float[1, 16, 8, 8] x) => (float y) {
        a = Conv <pads = [1, 1, 1, 1]> (x, w) b = Conv <pads = [1, 1, 1, 1]> (a, w)
        c = Exp(b) d = Exp(a) e = Add(c, d) y = ReduceSum <keepdims = 0> (e) }"""
    )
    weight = np.full((16, 16, 3, 3), 0.01, np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    path = save_proto(tmp_path, model)
    assert count_ops(path, "ENABLE_ALL", tmp_path)["ReorderOutput"] > 0
    content = rewrite(path, "a b c a d e y", "all")
    assert count_ops(content, "ENABLE_ALL", tmp_path)["ReorderOutput"] == 0
