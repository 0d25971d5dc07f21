"""Batch and sequence both symbolic: shapes that the graph computes are followed to the end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from checkmate.errors import InputError
from checkmate.onnxio.read import read_model
from onnx_models import save, save_proto

ATTENTION = """
attention (int64[N, T] ids, float[100, 16] words, float[512, 16] places, float[16, 48] w,
           bool[1, 1, 512, 512] causal)
  => (float[N, H, T, S] p, float[N, T, 16] y, float[] total)
  <int64[1] i0 = {0}, int64[1] i1 = {1}, int64 s0 = {0}, int64 s1 = {1}, int64[1] i2 = {2},
   int64[1] i3 = {3}, int64[1] heads = {4}, int64[1] rest = {-1}, float low = {-10000.0},
   int64 n_heads = {4}, int64[3] thirds = {16, 16, 16}> {
    shape = Shape(ids)
    t = Gather(shape, s1)
    n = Gather(shape, s0)
    range = Range(s0, t, s1)
    row = Unsqueeze(range, i0)
    e1 = Gather(words, ids)
    e2 = Gather(places, row)
    e = Add(e1, e2)
    qkv = MatMul(e, w)
    q, k, v = Split <axis = 2> (qkv, thirds)
    width = Div(w16, n_heads)
    w16shape = Shape(q)
    w16 = Gather(w16shape, i2)
    n1 = Unsqueeze(n, i0)
    t1 = Unsqueeze(t, i0)
    split = Concat <axis = 0> (n1, t1, heads, width)
    q4 = Reshape(q, split)
    k4 = Reshape(k, split)
    v4 = Reshape(v, split)
    qh = Transpose <perm = [0, 2, 1, 3]> (q4)
    kh = Transpose <perm = [0, 2, 3, 1]> (k4)
    vh = Transpose <perm = [0, 2, 1, 3]> (v4)
    scores = MatMul(qh, kh)
    sshape = Shape(scores)
    end = Slice(sshape, i3, four, i0)
    four = Constant <value = int64[1] {4}> ()
    begin = Sub(end, t1)
    m1 = Slice(causal, begin, end, i2, i1)
    m2 = Slice(m1, i0, end, i3, i1)
    full = Expand(m2, sshape)
    masked = Where(full, scores, low)
    p = Softmax <axis = 3> (masked)
    o = MatMul(p, vh)
    ot = Transpose <perm = [0, 2, 1, 3]> (o)
    back = Concat <axis = 0> (n1, t1, rest)
    y = Reshape(ot, back)
    flatshape = Mul(n1, t1)
    zeros = ConstantOfShape(flatshape)
    sum = ReduceSum <keepdims = 0> (zeros)
    ysum = ReduceSum <keepdims = 0> (y)
    total = Add(sum, ysum)
}"""

SIZES = {"N": 3, "T": 7}


def read_shapes(path: Path, dims: dict[str, int]) -> dict[str, tuple[int, ...]]:
    return {name: known.shape for name, known in read_model(path, dims).types.items()}


def test_every_tensor_of_an_attention_is_resolved(tmp_path: Path) -> None:
    shapes = read_shapes(save(tmp_path, ATTENTION), SIZES)
    assert shapes["scores"] == shapes["full"] == shapes["p"] == (3, 4, 7, 7)
    assert shapes["m1"] == (1, 1, 7, 512)
    assert shapes["y"] == (3, 7, 16)
    assert shapes["zeros"] == (21,)


def test_the_shapes_are_those_of_a_run(tmp_path: Path) -> None:
    path = save(tmp_path, ATTENTION)
    shapes = read_shapes(path, SIZES)
    proto = onnx.load(path)
    made = [name for node in proto.graph.node for name in node.output]
    del proto.graph.output[:]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made)
    feeds = {
        item.name: np.ones(shapes[item.name], onnx.helper.tensor_dtype_to_np_dtype(dtype))
        for item in proto.graph.input
        for dtype in [item.type.tensor_type.elem_type]
    }
    session = onnxruntime.InferenceSession(
        sort(proto).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for name, array in zip(made, session.run(made, feeds), strict=True):
        assert shapes[name] == array.shape, name


def sort(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return ``proto`` with every node after what it reads."""
    left, known = list(proto.graph.node), {i.name for i in proto.graph.input}
    known.update(tensor.name for tensor in proto.graph.initializer)
    del proto.graph.node[:]
    while left:
        node = next(n for n in left if known.issuperset(n.input))
        left.remove(node)
        known.update(node.output)
        proto.graph.node.append(node)
    return proto


@pytest.mark.parametrize(("given", "missing"), [({"N": 3}, "T"), ({"T": 7}, "N")])
def test_a_dimension_that_is_left_out_is_asked_for(
    tmp_path: Path, given: dict[str, int], missing: str
) -> None:
    with pytest.raises(InputError, match=f"'ids' has the symbolic dimension '{missing}'") as caught:
        read_model(save(tmp_path, ATTENTION), given)
    assert caught.value.hint == f"bind it with --dim {missing}=VALUE"


def test_without_what_the_file_says_of_inner_shapes_nothing_changes(tmp_path: Path) -> None:
    path = save(tmp_path, ATTENTION)
    bare = read_shapes(path, SIZES)
    proto = onnx.shape_inference.infer_shapes(onnx.load(path))
    assert proto.graph.value_info
    assert read_shapes(save_proto(tmp_path, proto), SIZES) == bare
