"""Where onnxruntime puts outputs, verified by runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkmate.onnxio.read import read_model
from checkmate.onnxio.storage import IN_PLACE_OPS, find_arena_rules
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.execute import RunOptions, run_model
from onnx_models import save

NBYTES = 64 * 64 * 4
CALLS = {
    "Cast": "Cast <to = 6> (a)",
    "Clip": "Clip (a, low, high)",
    "ScatterElements": "ScatterElements (a, i, u)",
}
"""What is not an op of one operand."""
CASES = [*sorted(IN_PLACE_OPS["cpu"]), "Exp", "Neg", "Sqrt", "Erf", "Abs", "Reciprocal", "Log"]


def save_chain(folder: Path, op_type: str) -> Path:
    call = CALLS.get(op_type, f"{op_type} (a)")
    kind = "int32" if op_type == "Cast" else "float"
    return save(
        folder,
        f"g (float[64, 64] x, int64[1, 1] i, float[1, 1] u) => ({kind} y)"
        f"<float low = {{0.0}}, float high = {{1.0}}>"
        f"{{ a = Exp(x) b = {call} y = ReduceSum <keepdims = 0> (b) }}",
    )


@pytest.mark.parametrize("op_type", CASES)
def test_ops_run_in_place_where_the_table_says_so_and_nowhere_else(
    op_type: str, tmp_path: Path
) -> None:
    path = save_chain(tmp_path, op_type)
    model = read_model(path, {})
    in_place = find_arena_rules(model, "cpu").in_place
    (used_nbytes,) = run_model(path, specify_inputs(model), RunOptions()).run_nbytes
    n_tensors = 1 if op_type in IN_PLACE_OPS["cpu"] else 2
    assert len(in_place) == 2 - n_tensors
    assert n_tensors * NBYTES <= used_nbytes < n_tensors * NBYTES + 4096


HIDDEN = "n = Shape <start = 0, end = 1> (x) s = Concat <axis = 0> (n, width) r = Reshape(a, s)"
OPEN, FIXED = "float[N, 64] x", "float[64, 64] x"


@pytest.mark.parametrize(
    ("given", "between", "n_tensors"),
    [
        (OPEN, HIDDEN, 2),
        (FIXED, HIDDEN, 2),
        (OPEN, "r = Flatten(a)", 1),
        (FIXED, "r = Flatten(a)", 1),
    ],
)
def test_ops_run_in_place_where_onnxruntime_knows_the_shapes(
    given: str, between: str, n_tensors: int, tmp_path: Path
) -> None:
    path = save(
        tmp_path,
        f"g ({given}) => (float y) <int64[1] width = {{64}}>"
        f"{{ a = Exp(x) {between} b = Relu(r) y = ReduceSum <keepdims = 0> (b) }}",
    )
    model = read_model(path, {"N": 64} if given == OPEN else {})
    (used_nbytes,) = run_model(path, specify_inputs(model), RunOptions()).run_nbytes
    assert n_tensors * NBYTES <= used_nbytes < n_tensors * NBYTES + 4096
    assert len(find_arena_rules(model, "cpu").in_place) == 2 - n_tensors


def test_graph_outputs_and_tensors_of_another_size_are_not_made_in_place(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        "g (float[64] x) => (float[64] y, double[64] z)"
        "{ a = Exp(x) y = Relu(a) b = Exp(x) c = Cast <to = 11> (b) z = Exp(c) }",
    )
    assert find_arena_rules(read_model(path, {}), "cpu").in_place == {}


def test_a_session_copies_small_initializers_and_cuda_copies_all(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        "g (float[64] x) => (float[64] y) <float one = {1.0}, float[64] w = {"
        + ", ".join(["1.0"] * 64)
        + "}> { a = Add(x, one) y = Add(a, w) }",
    )
    model = read_model(path, {})
    names = [
        [model.graph.tensors[t].name for t in find_arena_rules(model, provider).resident]
        for provider in ("cpu", "cuda")
    ]
    assert names == [["one"], ["one", "w"]]
