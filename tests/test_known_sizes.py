"""Sizes that follow from the inputs become constants before onnxruntime optimizes."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import numpy_helper

from checkmate.onnxio.optimized import prepare_model
from checkmate.onnxio.read import read_model
from checkmate.runtime.optimize import optimize_model
from onnx_models import save

MEAN = """mean (float[N, 4] x, float[N, 4] seed) => (float[N, 4] z)
{
    y = Exp(x)
    n = Size(y)
    count = Cast <to = 1> (n)
    share = Reciprocal(count)
    z = Mul(seed, share)
}"""

FOUND = """found (float[8] x) => (int64[1, F] i, float[8] z)
{
    i = NonZero(x)
    n = Size(i)
    count = Cast <to = 1> (n)
    z = Mul(x, count)
}"""


def find_values(proto: onnx.ModelProto, name: str) -> list[int]:
    return [
        int(numpy_helper.to_array(node.attribute[0].t))
        for node in proto.graph.node
        if node.op_type == "Constant" and node.output[0] == name
    ]


def test_a_size_that_the_inputs_say_is_a_constant(tmp_path: Path) -> None:
    model = read_model(save(tmp_path, MEAN), {"N": 6})
    assert find_values(prepare_model(model), "n") == [24]
    optimized = optimize_model(model, "basic", "cpu").model
    assert not {node.op_type for node in optimized.nodes} & {"Size", "Cast", "Reciprocal"}


def test_a_size_that_depends_on_data_stays(tmp_path: Path) -> None:
    model = read_model(save(tmp_path, FOUND.replace("F", "3")), {})
    assert model.types["i"].shape == (1, 3)
    assert find_values(prepare_model(model), "n") == []
    optimized = optimize_model(model, "basic", "cpu").model
    assert "Size" in {node.op_type for node in optimized.nodes}


def test_a_size_that_is_an_output_stays(tmp_path: Path) -> None:
    body = "g (float[4] x) => (float[4] y, int64 n) { y = Exp(x) n = Size(y) }"
    model = read_model(save(tmp_path, body), {})
    optimized = optimize_model(model, "basic", "cpu").model
    assert "Size" in {node.op_type for node in optimized.nodes}
