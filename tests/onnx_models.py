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


def deep_mlp(n_layers: int) -> str:
    """Return forward and backward of a multilayer perceptron with tanh; batch N.

    Its tensors are many and of one size, so that recomputing saves memory in an arena too.
    """
    steps: list[str] = []
    below = ["x", *(f"a{i}" for i in range(1, n_layers))]
    for i, read in enumerate(below, start=1):
        steps += [f"h{i} = MatMul({read}, w{i})", f"a{i} = Tanh(h{i})"]
    steps.append(f"loss = ReduceSum <keepdims = 0> (a{n_layers})")
    steps.append(f"shape = Shape(a{n_layers})")
    steps.append(f"d{n_layers} = ConstantOfShape <value = float[1] {{1.0}}> (shape)")
    for i in range(n_layers, 0, -1):
        steps += [f"q{i} = Mul(a{i}, a{i})", f"p{i} = Sub(one, q{i})", f"g{i} = Mul(d{i}, p{i})"]
        steps += [f"t{i} = Transpose <perm = [1, 0]> ({below[i - 1]})"]
        steps += [f"dw{i} = MatMul(t{i}, g{i})"]
        if i > 1:
            steps += [f"u{i} = Transpose <perm = [1, 0]> (w{i})", f"d{i - 1} = MatMul(g{i}, u{i})"]
    given = ["float[N, 64] x", *(f"float[64, 64] w{i + 1}" for i in range(n_layers))]
    made = ["float loss", *(f"float[64, 64] dw{i + 1}" for i in range(n_layers))]
    body = "\n".join(steps)
    return f"mlp ({', '.join(given)}) => ({', '.join(made)}) <float one = {{1.0}}> {{ {body} }}"


DEEP_MLP = deep_mlp(4)


def residual_mlp(n_layers: int) -> str:
    """Return forward and backward of residual layers ``r = tanh(r w) + r``; batch N."""
    steps: list[str] = []
    for i in range(1, n_layers + 1):
        below = f"r{i - 1}" if i > 1 else "x"
        steps += [f"h{i} = MatMul({below}, w{i})", f"a{i} = Tanh(h{i})"]
        steps += [f"r{i} = Add(a{i}, {below})"]
    steps += [f"loss = ReduceSum <keepdims = 0> (r{n_layers})", f"shape = Shape(r{n_layers})"]
    steps.append(f"d{n_layers} = ConstantOfShape <value = float[1] {{1.0}}> (shape)")
    for i in range(n_layers, 0, -1):
        below = f"r{i - 1}" if i > 1 else "x"
        steps += [f"q{i} = Mul(a{i}, a{i})", f"p{i} = Sub(one, q{i})", f"g{i} = Mul(d{i}, p{i})"]
        steps += [f"t{i} = Transpose <perm = [1, 0]> ({below})", f"dw{i} = MatMul(t{i}, g{i})"]
        if i > 1:
            steps += [f"u{i} = Transpose <perm = [1, 0]> (w{i})", f"e{i} = MatMul(g{i}, u{i})"]
            steps += [f"d{i - 1} = Add(e{i}, d{i})"]
    given = ["float[N, 32] x", *(f"float[32, 32] w{i + 1}" for i in range(n_layers))]
    made = ["float loss", *(f"float[32, 32] dw{i + 1}" for i in range(n_layers))]
    body = "\n".join(steps)
    return f"res ({', '.join(given)}) => ({', '.join(made)}) <float one = {{1.0}}> {{ {body} }}"
