"""Tensors that nothing reads, of types that onnxruntime knows little of."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnxruntime
import pytest
from onnx import helper

from checkmate.costs import unit_costs
from checkmate.graph import OpId
from checkmate.liveness import insert_frees
from checkmate.onnxio.expand import expand
from checkmate.onnxio.fences import find_obstacle
from checkmate.onnxio.model import TensorType
from checkmate.onnxio.read import read_model
from checkmate.onnxio.rewrite import rewrite_model
from checkmate.onnxio.waiting import choose_reader, has_size
from checkmate.problem import Problem
from onnx_models import save
from test_cli import checkmate

NUMBERS = [t for t in onnx.TensorProto.DataType.values() if t not in (0, 8)]
UNREAD = """
g (float[3, 4] x) => (float[3, 4] y) {
    b = Cast <to = 16> (x)
    y = Exp(x)
}"""


def loads(model: onnx.ModelProto) -> bool:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    providers = ["CPUExecutionProvider"]
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=providers)
    except Exception:
        return False
    return True


def make_reading(op_type: str, elem_type: int, opset: int) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", elem_type, [2, 3])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.INT64, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


@pytest.mark.parametrize("opset", [13, 22])
def test_size_is_known_for_the_types_that_it_takes(opset: int) -> None:
    taken = [t for t in NUMBERS if loads(make_reading("Size", t, opset))]
    assert [t for t in NUMBERS if has_size(t)] == taken


@pytest.mark.parametrize("opset", [12, 13, 20, 22])
@pytest.mark.parametrize("elem_type", NUMBERS)
def test_the_reader_of_a_tensor_takes_its_type(elem_type: int, opset: int) -> None:
    reader = choose_reader(TensorType(elem_type, (2, 3)), opset)
    readers = [op_type for op_type in ("Shape", "Size") if op_type == reader]
    assert [loads(make_reading(op_type, elem_type, opset)) for op_type in readers] in ([], [True])
    assert reader is not None or not loads(make_reading("Shape", elem_type, opset))


@pytest.mark.parametrize(("elem_type", "reader"), [(1, "Size"), (10, "Shape"), (16, "Shape")])
def test_halves_have_no_size_without_a_cast(elem_type: int, reader: str) -> None:
    assert choose_reader(TensorType(elem_type, ()), 18) == reader


def test_what_is_made_in_bfloat16_and_not_read_does_not_keep_the_file_from_loading(
    tmp_path: Path,
) -> None:
    model = read_model(save(tmp_path, UNREAD), {})
    schedule = insert_frees(model.graph, [OpId(0), OpId(1)])
    rewritten = rewrite_model(model, schedule)
    assert [node.op_type for node in rewritten.graph.node] == ["Cast", "Shape", "Exp"]
    assert loads(rewritten)
    problem = Problem(model.graph, unit_costs(model.graph))
    expanded, _ = expand(problem, model, schedule, "none")
    assert {t.name: t.nbytes for t in expanded.graph.tensors}["b__released"] == 2 * 8


def test_fences_do_not_measure_what_has_no_size(tmp_path: Path) -> None:
    path = save(tmp_path, UNREAD.replace("to = 16", "to = 17"), opset=22)
    model = read_model(path, {})
    assert find_obstacle(model, "cuda") is None
    assert find_obstacle(model, None) == (
        "on the CPU, onnxruntime has no Size of float8e4m3fn tensors like 'b'"
    )
    solve = ("solve", "model.onnx", "--budget", "8KiB", "--costs", "flops", "--optimize", "none")
    done = checkmate(*solve, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "no fences: on the CPU, onnxruntime has no Size of float8e4m3fn" in done.stderr
    assert loads(onnx.load(tmp_path / "model.scheduled.onnx"))
