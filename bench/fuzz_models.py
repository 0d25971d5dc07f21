"""Small valid models as text, which `bench/fuzz.py` damages."""

from __future__ import annotations

TRAINING = """
mlp (float[N, 16] x, float[16, 16] w1, float[16, 16] w2, float[16, 1] w3)
  => (float loss, float[16, 16] dw1, float[16, 16] dw2, float[16, 1] dw3)
  <float[1] one = {1.0}, float zero = {0.0}, int16[1] both = {0}> {
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

SMALL = (
    """g (float[N, 8] x, bool c) => (float[N, 8] y, float l) {
        a = Relu(x)
        b = If (c) <
            then_branch = t () => (float[N, 8] p) { p = Exp(a) },
            else_branch = e () => (float[N, 8] q) { q = Neg(a) }
        >
        y = Add(a, b)
        l = ReduceSum <keepdims = 0> (y)
    }""",
    """g (float16[4, 8] x, int64[3] i) => (float16[3, 8] y, float16[4, 8] z, bool[3, 8] m)
      <float16[8] w = {1, 2, 3, 4, 5, 6, 7, 8}, float ratio = {0.5}, bool yes = {1}> {
        a = Mul(x, w)
        y = Gather(a, i)
        z, k = Dropout(a, ratio, yes)
        m = Cast <to = 9> (y)
    }""",
    """g (float[2, 3, 8, 8] x, float[4, 3, 3, 3] w, float[4] s, float[4] b, float[4] m, float[4] v)
      => (float[2, 4, 3, 3] y, float[4] mean, float[4] var) {
        c = Conv <pads = [1, 1, 1, 1]> (x, w)
        n, mean, var = BatchNormalization <training_mode = 1> (c, s, b, m, v)
        p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (n)
        y = AveragePool <kernel_shape = [2, 2]> (p)
    }""",
    """g (float[N, 4] x, float[4, 4] w) => (float[N, 4] y, float[N, 4] z, float s)
      <int64[2] shape = {-1, 4}, int64 n = {3}, bool yes = {1}> {
        r = RandomNormalLike (x)
        a = Add(x, r)
        b = Reshape(a, shape)
        y = Loop (n, yes, b) <body = body (int64 i, bool c, float[N, 4] v)
          => (bool d, float[N, 4] u) { d = Identity(c) u = MatMul(v, w) }>
        t = Transpose(b)
        u = Transpose(t)
        z = Softmax(u)
        s = ReduceMean <keepdims = 0> (z)
    }""",
    TRAINING,
)
"""The last trains."""
