"""Costs that are counted from shapes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from checkmate.costs import Origin
from checkmate.onnxio.read import read_model
from checkmate.profiler.flops import (
    ACCELERATOR,
    PROCESSOR,
    count_flops,
    count_traffic_nbytes,
    estimate_costs,
    estimate_op_ns,
)
from checkmate.profiler.surroundings import survey
from onnx_models import GRAPHS, save

CASES = {
    "convolution": (
        "(float[2, 8, 10, 10] x, float[16, 8, 3, 3] w) => (float[2, 16, 8, 8] y){ y = Conv(x, w) }",
        2 * (2 * 16 * 8 * 8) * (8 * 3 * 3),
        4 * (1600 + 1152 + 2048),
    ),
    "depthwise": (
        "(float[2, 8, 10, 10] x, float[8, 1, 3, 3] w) => (float[2, 8, 8, 8] y)"
        "{ y = Conv <group = 8> (x, w) }",
        2 * (2 * 8 * 8 * 8) * (1 * 3 * 3),
        4 * (1600 + 72 + 1024),
    ),
    "transposed": (
        "(float[2, 8, 8, 8] x, float[8, 16, 3, 3] w) => (float[2, 16, 10, 10] y)"
        "{ y = ConvTranspose(x, w) }",
        2 * (2 * 8 * 8 * 8) * (16 * 3 * 3),
        4 * (1024 + 1152 + 3200),
    ),
    "gemm": (
        "(float[5, 7] x, float[5, 3] w) => (float[7, 3] y) { y = Gemm <transA = 1> (x, w) }",
        2 * 7 * 3 * 5,
        4 * (35 + 15 + 21),
    ),
    "batched product": (
        "(float[6, 5, 7] x, float[6, 7, 3] w) => (float[6, 5, 3] y) { y = MatMul(x, w) }",
        2 * 6 * 5 * 3 * 7,
        4 * (210 + 126 + 90),
    ),
    "elementwise": ("(float[9] x) => (float[9] y) { y = Relu(x) }", 9, 4 * 18),
    "a function": ("(float[9] x) => (float[9] y) { y = Exp(x) }", 90, 4 * 18),
    "one tensor twice": ("(float[9] x) => (float[9] y) { y = Mul(x, x) }", 9, 4 * 18),
    "reduction": ("(float[9, 9] x) => (float y) { y = ReduceSum <keepdims = 0> (x) }", 81, 4 * 82),
    "gather": (
        "(float[1000, 4] x, int64[3] i) => (float[3, 4] y) { y = Gather(x, i) }",
        4000,
        48 + 24 + 48,
    ),
    "shape": ("(float[1000] x) => (int64[1] y) { y = Shape(x) }", 1000, 8),
}


@pytest.mark.parametrize(("body", "flops", "nbytes"), CASES.values(), ids=CASES)
def test_arithmetic_and_traffic(body: str, flops: int, nbytes: int, tmp_path: Path) -> None:
    model = read_model(save(tmp_path, f"g {body}"), {})
    around = survey(model)
    assert count_flops(model.nodes[0], around) == flops
    assert count_traffic_nbytes(model.nodes[0], around) == nbytes


def test_an_op_takes_its_arithmetic_or_its_traffic_and_a_launch(tmp_path: Path) -> None:
    body = "(float[1000, 1000] x) => (float[1000, 1000] y) { a = MatMul(x, x) y = Relu(a) }"
    model = read_model(save(tmp_path, f"g {body}"), {})
    product, relu = model.nodes
    around = survey(model)
    assert estimate_op_ns(product, around, ACCELERATOR) == 5_000 + 1000 * 2 * 10**9 // 10_000_000
    assert estimate_op_ns(relu, around, ACCELERATOR) == 5_000 + 1000 * 8 * 10**6 // 700_000
    assert estimate_op_ns(relu, around, PROCESSOR) == 2_000 + 1000 * 8 * 10**6 // 8_000


def test_views_cost_nothing(tmp_path: Path) -> None:
    body = (
        "(float[4, 4] x) => (float[16] y) <int64[1] s = {16}>"
        "{ a = Exp(x) b = Reshape(a, s) y = Exp(b) }"
    )
    costs = estimate_costs(read_model(save(tmp_path, f"g {body}"), {}))
    assert costs.time_ns[1] == 0
    assert costs.time_ns[0] == costs.time_ns[2] > 0
    assert costs.workspace_nbytes == (0, 0, 0)
    assert costs.origin == Origin("flops")


@pytest.mark.parametrize("path", sorted(GRAPHS.glob("*-full-*.onnx")), ids=lambda path: path.stem)
def test_real_graphs_take_seconds_not_hours(path: Path) -> None:
    costs = estimate_costs(read_model(path, {}))
    assert 10**8 < costs.total_ns < 10**10


def test_counting_does_not_import_onnxruntime() -> None:
    program = "import sys, checkmate.profiler.flops; sys.exit('onnxruntime' in sys.modules)"
    source = str(Path(__file__).parent.parent / "src")
    command = [sys.executable, "-c", program]
    assert subprocess.run(command, env={"PYTHONPATH": source}, check=False).returncode == 0
