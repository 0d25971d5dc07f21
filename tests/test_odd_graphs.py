"""Models that are odd: of the training build, refused by onnx.checker, shaped by a run."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import onnxruntime
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state

from checkmate.errors import RunError
from checkmate.graph import OpId
from checkmate.liveness import insert_frees
from checkmate.onnxio.doubts import find_complaint, find_unrunnable
from checkmate.onnxio.model import Model, TensorType
from checkmate.onnxio.read import read_model
from checkmate.onnxio.rewrite import rewrite_model
from checkmate.onnxio.shape_rules import _TRAINING_OPS
from checkmate.profiler.learn_types import learn_types
from onnx_models import save, save_proto
from test_cli import checkmate

HEAD = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>\n'

LEGACY = (
    HEAD
    + """
legacy (float[N, 3, 16, 16] x, int64[N] labels, float[8, 3, 3, 3] w, float[8] s, float[8] b,
        float[8] mean, float[8] var, float[8, 10] v, float[8, 3, 3, 3] w_sum, float[8, 10] v_sum,
        bool[1] reset, float seed)
  => (float loss, bool[1] w_done, bool[1] v_done) {
    c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w)
    n, m1, v1, sm, si = com.microsoft.BatchNormInternal <training_mode = 1> (c, s, b, mean, var)
    r = Relu(n)
    p, i = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)
    g = GlobalAveragePool(p)
    gshape = Shape(p)
    f = Flatten(g)
    z = Gemm(f, v)
    loss, log = SoftmaxCrossEntropyLoss(z, labels)
    dz = com.microsoft.SoftmaxCrossEntropyLossGrad(seed, log, labels)
    dv = Gemm <transA = 1> (f, dz)
    df = Gemm <transB = 1> (dz, v)
    fshape = Shape(g)
    dg = Reshape(df, fshape)
    dp = Expand(dg, gshape)
    dr = MaxPoolGrad <kernel_shape = [2, 2], strides = [2, 2]> (dp, i)
    dn = com.microsoft.ReluGrad(dr, r)
    dc, ds, db = com.microsoft.BatchNormalizationGrad(dn, c, s, sm, si)
    dx, dw = com.microsoft.ConvGrad <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (dc, x, w)
    w_done = com.microsoft.InPlaceAccumulatorV2(w_sum, dw, reset)
    v_done = com.microsoft.InPlaceAccumulatorV2(v_sum, dv, reset)
}"""
)


def read_text(folder: Path, text: str, dims: dict[str, int]) -> Model:
    return read_model(save_proto(folder, onnx.parser.parse_model(text)), dims)


def test_artifacts_of_the_training_build_are_read_and_shaped(tmp_path: Path) -> None:
    model = read_text(tmp_path, LEGACY, {"N": 4})
    sizes = {tensor.name: tensor.nbytes for tensor in model.graph.tensors}
    assert sizes["dr"] == sizes["r"] == sizes["dc"] == 4 * 8 * 16 * 16 * 4
    assert sizes["w_done"] == 1
    assert find_unrunnable(model) is not None


def test_gradient_operators_are_the_backward_pass(tmp_path: Path) -> None:
    model = read_text(tmp_path, LEGACY, {"N": 4})
    kinds = {n.op_type: op.backward for op, n in zip(model.graph.ops, model.nodes, strict=True)}
    assert kinds["ConvGrad"]
    assert kinds["MaxPoolGrad"]
    assert kinds["InPlaceAccumulatorV2"]
    assert not kinds["Conv"]
    assert not kinds["SoftmaxCrossEntropyLoss"]


def test_what_writes_over_its_inputs_runs_once_and_in_its_place(tmp_path: Path) -> None:
    model = read_text(tmp_path, LEGACY, {"N": 4})
    pinned = [
        node.op_type
        for op, node in zip(model.graph.ops, model.nodes, strict=True)
        if not op.recomputable
    ]
    assert pinned == ["BatchNormInternal", "InPlaceAccumulatorV2", "InPlaceAccumulatorV2"]


def test_what_reads_what_is_written_over_runs_once(tmp_path: Path) -> None:
    text = (
        HEAD
        + """g (float[4] sum, float[4] x, bool[1] reset) => (bool[1] done, float[2, 2] y)
          <int64[2] square = {2, 2}> {
            before = Reshape(sum, square)
            a = Exp(before)
            b = Sqrt(x)
            done = com.microsoft.InPlaceAccumulatorV2(sum, x, reset)
            c = Reshape(b, square)
            y = Add(a, c)
        }"""
    )
    graph = read_text(tmp_path, text, {}).graph
    once = [graph.tensors[op.outputs[0]].name for op in graph.ops if not op.recomputable]
    assert once == ["a", "done"]


def test_a_rewritten_artifact_keeps_its_accumulators_and_copies_the_rest(tmp_path: Path) -> None:
    model = read_text(tmp_path, LEGACY, {"N": 4})
    ops = [OpId(i) for i in range(len(model.graph.ops))]
    again = [op for op in ops if model.graph.ops[op].recomputable]
    nodes = rewrite_model(model, insert_frees(model.graph, ops + again)).graph.node
    kinds = [node.op_type for node in nodes]
    assert kinds.count("InPlaceAccumulatorV2") == 2
    assert kinds.count("ConvGrad") == 2


def test_stock_onnxruntime_knows_none_of_the_operators_of_the_training_build() -> None:
    assert onnxruntime.get_available_providers()
    known = {
        schema.name
        for schema in onnxruntime_pybind11_state.get_all_operator_schema()
        if schema.domain == "com.microsoft"
    }
    assert known.isdisjoint(_TRAINING_OPS)


def test_an_artifact_is_planned_with_counted_costs_and_one_note(tmp_path: Path) -> None:
    save_proto(tmp_path, onnx.parser.parse_model(LEGACY))
    done = checkmate(
        "solve", "model.onnx", "--budget", "95%", "--dim", "N=8", "--json", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["costs"]["source"] == "flops"
    notes = [line for line in done.stderr.splitlines() if line.startswith("note:")]
    assert len(notes) == 1
    assert "stock onnxruntime cannot run this model" in notes[0]


def test_what_onnx_refuses_is_planned_all_the_same(tmp_path: Path) -> None:
    proto = onnx.load(save(tmp_path, "g (float[4] x) => (float[4] y) { y = Exp(x) }"))
    proto.graph.node[0].attribute.append(onnx.helper.make_attribute("extra", 1))
    complaint = find_complaint(read_model(save_proto(tmp_path, proto), {}))
    assert complaint is not None
    assert "extra" in complaint
    done = checkmate("solve", "model.onnx", "--budget", "100%", "--costs", "flops", cwd=tmp_path)
    assert done.returncode == 0
    assert "note: onnx does not accept this model: Exp 'making y': Unrecognized" in done.stderr


def test_a_normalization_that_states_its_statistics_again_is_noted(tmp_path: Path) -> None:
    text = (
        HEAD
        + """g (float[2, 3, 4] x, float[3] s, float[3] b, float[3] m, float[3] v)
      => (float[2, 3, 4] y) {
        n, p, q = BatchNormalization <training_mode = 0> (x, s, b, m, v)
        y = Exp(n)
    }"""
    )
    model = read_text(tmp_path, text, {})
    assert model.types["p"].shape == (3,)
    complaint = find_complaint(model)
    assert complaint is not None
    assert complaint.startswith("BatchNormalization 'making n': ")


def test_dimensions_are_listed_with_the_option_that_binds_them(tmp_path: Path) -> None:
    save(tmp_path, "g (float[N, T] x, int64[N] i) => (float[N, T] y) { y = Exp(x) }")
    done = checkmate("show", "model.onnx", "--list-dims", "--json", cwd=tmp_path)
    assert json.loads(done.stdout) == {"dims": {"N": ["x", "i"], "T": ["x"]}}
    assert "N: of input 'x' and 1 more inputs; bind it with --dim N=VALUE" in done.stderr


DATA_DEPENDENT = """
g (float[N] x) => (float[M] y, float z) {
    a = Abs(x)
    where = NonZero(a)
    places = Transpose <perm = [1, 0]> (where)
    y = GatherND(a, places)
    h = Cast <to = 10> (y)
    s = ReduceSum <keepdims = 0> (h)
    z = Cast <to = 1> (s)
}"""


def test_shapes_that_depend_on_data_are_taken_from_a_run_when_asked_for(tmp_path: Path) -> None:
    path = save(tmp_path, DATA_DEPENDENT)
    measured = learn_types(path, {"N": 50})
    assert measured["where"] == TensorType(onnx.TensorProto.INT64, (1, 50))
    assert measured["h"] == TensorType(onnx.TensorProto.FLOAT16, (50,))
    assert "a" not in measured
    assert read_model(path, {"N": 50}, measured=measured).types["y"].shape == (50,)
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]


def test_a_schedule_for_shapes_from_a_run_is_checked_with_them(tmp_path: Path) -> None:
    save(tmp_path, DATA_DEPENDENT)
    solve = ["solve", "model.onnx", "--dim", "N=50", "--budget", "100%", "--costs", "flops"]
    refused = checkmate(*solve, cwd=tmp_path)
    assert refused.returncode == 3
    assert "tensor 'where', made by NonZero 'making where', has an unknown dim" in refused.stderr
    assert checkmate(*solve, "--shapes-from-run", cwd=tmp_path).returncode == 0
    check = ["check", "model.onnx", "model.schedule.json"]
    assert checkmate(*check, cwd=tmp_path).returncode == 3
    assert checkmate(*check, "--shapes-from-run", cwd=tmp_path).returncode == 0


def test_a_run_that_fails_tells_no_shapes(tmp_path: Path) -> None:
    text = HEAD + "g (float[N] x) => (float[M] y) { y = com.microsoft.NoSuchOp(x) }"
    path = save_proto(tmp_path, onnx.parser.parse_model(text))
    with pytest.raises(RunError, match=r"no shapes from a run of 'model.onnx': .*NoSuchOp"):
        learn_types(path, {"N": 4})


def test_a_file_for_fixed_sizes_is_believed_where_nothing_else_tells(tmp_path: Path) -> None:
    text = HEAD.replace("com.microsoft", "com.acme")
    text += "g (float[4] x) => (float[2, 2] y) { y = com.acme.Wobble(x) }"
    assert read_text(tmp_path, text, {}).types["y"].shape == (2, 2)
