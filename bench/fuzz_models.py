"""Small valid models as text, which `bench/fuzz.py` damages."""

from __future__ import annotations

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
          => (bool d, float[N, 4] m) { d = Identity(c) m = MatMul(v, w) }>
        t = Transpose(b)
        u = Transpose(t)
        z = Softmax(u)
        s = ReduceMean <keepdims = 0> (z)
    }""",
    """g (float[6, 4, 8] x, float[8] s, float[8] b, int64[2, 3] ids, float[16, 8] table)
      => (float[6, 4, 8] y, float[2, 3, 8] e, float[5, 8] c, float loss)
      <int64[2] sizes = {2, 4}, int64[1] from = {1}, int64[1] to = {4}, int64 k = {2}> {
        n, mean, inv = LayerNormalization (x, s, b)
        top, bottom = Split <axis = 1> (n, halves)
        halves = Constant <value = int64[2] {2, 2}> ()
        joined = Concat <axis = 1> (bottom, top)
        part = Slice (joined, from, to)
        padded = Pad (part, pads)
        pads = Constant <value = int64[6] {1, 0, 0, 2, 0, 0}> ()
        y = Where (mask, padded, x)
        mask = Greater (x, padded)
        e = Gather (table, ids)
        best, place = TopK <axis = -1> (x, k1)
        k1 = Constant <value = int64[1] {3}> ()
        flat = Reshape (best, two)
        two = Constant <value = int64[2] {-1, 3}> ()
        wide = Einsum <equation = "ij,ik->jk"> (flat, flat)
        norm = ReduceL2 <keepdims = 0> (wide)
        total = ReduceSum <keepdims = 0> (y)
        loss = Add (norm, total)
        c = Tile (s2, repeats)
        s2 = Unsqueeze (s, axis)
        axis = Constant <value_ints = [0]> ()
        repeats = Constant <value = int64[2] {5, 1}> ()
    }""",
    """g (float[3, 2, 4] x, float[N, 4] v, float[2, 4] h, int64[N] labels)
      => (float[2, 4] last, float[3, 2, 4] all, float loss, float[N, 4] grad)
      <float[2] values = {0.0, 1.0}, int64 four = {4}> {
        last, all = Scan <num_scan_inputs = 1, body = body (float[2, 4] a, float[2, 4] r)
          => (float[2, 4] b, float[2, 4] g) { t = Add(a, r) b = Tanh(t) g = Mul(b, r) }> (h, x)
        loss, logs = SoftmaxCrossEntropyLoss (v, labels)
        p = Exp (logs)
        hot = OneHot (labels, four, values)
        d = Sub (p, hot)
        shape = Shape <end = 1> (v)
        n = Cast <to = 1> (shape)
        grad = Div (d, n)
    }""",
    """g (uint8[4, 8] q, int8[8, 8] w, float[4, 8] x, double[4] d)
      => (int32[4, 8] i, uint8[4, 8] u, float[4, 8] y, double[4] z, bool b)
      <float scale = {0.1}, uint8 zero = {3}> {
        i = MatMulInteger (q, w, zero)
        u = QuantizeLinear (x, scale, zero)
        f = DequantizeLinear (u, scale, zero)
        y = Mish (f)
        z = CumSum (d, axis)
        axis = Constant <value_int = 0> ()
        less = Less (d, z)
        h = Cast <to = 7> (less)
        m = ReduceMin <keepdims = 0> (h)
        b = Cast <to = 9> (m)
    }""",
    """g (float[N, 8] x) => (float[N, 8] y, float[4, 8] z, float[8] w)
      <float[8] w = {1, 2, 3, 4, 5, 6, 7, 8}> {
        a = Exp(x)
        b = Mul(a, w)
        n = RandomUniform <shape = [8], seed = 3.0> ()
        c = Add(b, n)
        k = RandomNormal <shape = [4, 8], seed = 4.0> ()
        z = Mul(k, w)
        y = Mul(c, a)
    }""",
)
