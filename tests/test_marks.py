"""Marks on copies: onnxruntime's fusions take them, and equal copies stay two."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkmate.onnxio.windows import Fences
from default_runs import feeds_of, rewrite, run
from onnx_models import save

ACTIVATIONS = (
    "Elu", "HardSigmoid", "LeakyRelu", "Relu", "Selu", "Sigmoid", "Softplus", "Softsign", "Tanh",
    "ThresholdedRelu",
)  # fmt: skip

MODEL = """
training (float[4, 8] x) => (float y, float z)
<float[8, 8] w = {WEIGHTS}, float[8] bias = {1, 2, 3, 4, 5, 6, 7, 8}>
{
    MAKE
    a = ACTIVATION(h)
    b = Exp(a)
    y = ReduceSum <keepdims = 0> (b)
    c = Cos(a)
    z = ReduceSum <keepdims = 0> (c)
}
"""
MAKERS = {
    "Gemm": ("h = Gemm(x, w, bias)", "h"),
    "MatMul and Add": ("m = MatMul(x, w) h = Add(m, bias)", "m h"),
}


def save_model(folder: Path, activation: str, make: str) -> Path:
    weights = ", ".join(str(number % 7 - 3) for number in range(64))
    text = MODEL.replace("WEIGHTS", weights).replace("MAKE", make)
    return save(folder, text.replace("ACTIVATION", activation))


@pytest.mark.parametrize("fences", ["none", "run", "all"])
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_copy_of_an_activation_may_be_fused_into_its_gemm(
    activation: str, maker: str, fences: Fences, tmp_path: Path
) -> None:
    make, made = MAKERS[maker]
    path = save_model(tmp_path, activation, make)
    content = rewrite(path, f"{made} a b y {made} a c z", fences)
    feeds = feeds_of(path)
    assert run(content, feeds, tmp_path).outputs == run(path.read_bytes(), feeds, tmp_path).outputs


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_copy_that_reads_the_same_tensor_stays_a_second_op(
    activation: str, tmp_path: Path
) -> None:
    path = save_model(tmp_path, activation, MAKERS["Gemm"][0])
    content = rewrite(path, "h a b y a c z", "none")
    executed = run(content, feeds_of(path), tmp_path).executed
    assert {"a", "a__recompute1"} <= set(executed)
