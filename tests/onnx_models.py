"""Small ONNX models as text."""

from __future__ import annotations

from pathlib import Path

import onnx

GRAPHS = Path(__file__).parent.parent / "graphs"


def save(folder: Path, body: str, *, opset: int = 18) -> Path:
    """Write the model whose graph is ``body`` to a file in ``folder``; return its path."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{body}')
    return save_proto(folder, model)


def save_proto(folder: Path, model: onnx.ModelProto, name: str = "model.onnx") -> Path:
    """Write ``model`` to a file in ``folder``; return its path."""
    path = folder / name
    path.write_bytes(model.SerializeToString())
    return path


TRAINING_MLP = """
mlp (float[N, 64] x, float[64, 64] w1, float[64, 64] w2, float[64, 1] w3)
  => (float loss, float[64, 64] dw1, float[64, 64] dw2, float[64, 1] dw3)
  <float[1] one = {1.0}, float zero = {0.0}, int64[1] both = {0}> {
    h1 = MatMul(x, w1)
    a1 = Relu(h1)
    h2 = MatMul(a1, w2)
    a2 = Relu(h2)
    y = MatMul(a2, w3)
    loss = ReduceSum <keepdims = 0> (y)
    shape = Shape(y)
    dy = ConstantOfShape <value = float[1] {1.0}> (shape)
    a2t = Transpose <perm = [1, 0]> (a2)
    dw3 = MatMul(a2t, dy)
    w3t = Transpose <perm = [1, 0]> (w3)
    da2 = MatMul(dy, w3t)
    m2 = Greater(a2, zero)
    dh2 = Where(m2, da2, zero)
    a1t = Transpose <perm = [1, 0]> (a1)
    dw2 = MatMul(a1t, dh2)
    w2t = Transpose <perm = [1, 0]> (w2)
    da1 = MatMul(dh2, w2t)
    m1 = Greater(a1, zero)
    dh1 = Where(m1, da1, zero)
    xt = Transpose <perm = [1, 0]> (x)
    dw1 = MatMul(xt, dh1)
}
"""
"""Forward and backward of a multilayer perceptron; batch N."""
