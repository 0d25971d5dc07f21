"""Models of one op: any op that can run alone does, with inputs it accepts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

from checkmate.errors import OutOfMemoryError, RunError
from checkmate.onnxio.model import TensorType
from checkmate.onnxio.read import read_model
from checkmate.profiler.measure import Effort, measure_op
from checkmate.profiler.one_op import UnmeasurableError, build_one_op
from checkmate.profiler.surroundings import Surroundings, survey
from checkmate.runtime.protocol import Settings, TensorSpec, TimeTask, read_task, write_task
from checkmate.runtime.timing import allocate
from checkmate.runtime.worker import Worker
from onnx_models import save

HAS_DRIVER = Path("/proc/driver/nvidia/version").exists()
QUICK = Effort(Settings(threads=1), max_runs=2, max_ns=0)


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as shared:
        yield shared


def look(folder: Path, body: str) -> tuple[onnx.NodeProto, Surroundings]:
    """Return the last op of the graph ``g BODY`` and what it sees."""
    model = read_model(save(folder, f"g {body}"), {})
    return model.nodes[-1], survey(model)


MEASURABLE = {
    "gather": "(float[5, 4] x, int64[9] i) => (float[9, 4] y) { y = Gather(x, i) }",
    "gather last": "(float[9, 2] x, int32[9] i) => (float[9, 9] y)"
    "{ y = Gather <axis = -1> (x, i) }",
    "gather elements": "(float[9, 3] x, int64[9, 1] i) => (float[9, 1] y)"
    "{ y = GatherElements <axis = 1> (x, i) }",
    "gather nd": "(float[3, 9] x, int64[50, 2] i) => (float[50] y) { y = GatherND(x, i) }",
    "scatter elements": "(float[9, 3] x, int64[9, 1] i, float[9, 1] u) => (float[9, 3] y)"
    '{ y = ScatterElements <axis = 1, reduction = "add"> (x, i, u) }',
    "scatter nd": "(float[3, 9] x, int64[50, 2] i, float[50] u) => (float[3, 9] y)"
    '{ y = ScatterND <reduction = "add"> (x, i, u) }',
    "one hot": "(int64[40] i, float[2] v) => (float[40, 3] y) <int64 d = {3}>"
    "{ y = OneHot(i, d, v) }",
    "loss": "(float[40, 3] x, int64[40] l) => (float y) { y = SoftmaxCrossEntropyLoss(x, l) }",
    "top k": "(float[9, 8] x) => (float[9, 3] v, int64[9, 3] i) <int64[1] k = {3}>"
    "{ v, i = TopK(x, k) }",
    "range": "(float[1] x) => (int64[7] y) <int64 a = {0}, int64 b = {7}, int64 c = {1}>"
    "{ y = Range(a, b, c) }",
    "slice": "(float[9, 8] x) => (float[4, 8] y) <int64[1] s = {-5}, int64[1] e = {-1},"
    " int64[1] a = {0}> { y = Slice(x, s, e, a) }",
    "pad": "(float[2, 3] x) => (float[4, 6] y) <int64[4] p = {1, 2, 1, 1}> { y = Pad(x, p) }",
    "dropout": "(float[9] x) => (float[9] y, bool[9] m) <float r = {0.5}, bool t = {1}>"
    "{ y, m = Dropout(x, r, t) }",
    "pool with one output": "(float[1, 1, 8, 8] x) => (float[1, 1, 4, 4] y)"
    "{ y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x) }",
    "two outputs": "(float[1, 1, 8, 8] x) => (float[1, 1, 4, 4] y, int64[1, 1, 4, 4] i)"
    "{ y, i = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x) }",
    "only the second output": "(float[9, 8] x) => (int64[9, 3] i) <int64[1] k = {3}>"
    "{ _v, i = TopK(x, k) }",
    "absent input": "(float[9] x, float m) => (float[9] y) { y = Clip(x, , m) }",
    "one tensor twice": "(float[9] x) => (float[9] y) { y = Mul(x, x) }",
    "weight": "(float[1, 2] x) => (float[1, 2] y) <float[2, 2] w = {1, 2, 3, 4}>"
    "{ y = MatMul(x, w) }",
    "scalar": "(float x) => (float y) { y = Log(x) }",
    "half": "(float16[9, 9] x) => (float16[9, 9] y) { y = Relu(x) }",
    "double": "(double[9, 9] x) => (double[9, 9] y) { y = Sqrt(x) }",
    "bfloat16": "(bfloat16[9] x) => (float[9] y) { y = Cast <to = 1> (x) }",
    "bool": "(bool[9] c, float[9] a, float[9] b) => (float[9] y) { y = Where(c, a, b) }",
    "division": "(int64[9] a, int64[9] b) => (int64[9] y) { y = Div(a, b) }",
    "rest": "(uint8[9] a, uint8[9] b) => (uint8[9] y) { y = Mod(a, b) }",
    "gather of one": "(float[1, 4] x, int64[9] i) => (float[9, 4] y) { y = Gather(x, i) }",
    "unpool": "(float[1, 1, 2, 2] x, int64[1, 1, 2, 2] i) => (float[1, 1, 4, 4] y)"
    "{ y = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (x, i) }",
    "masked loss": "(float[2, 3, 4] x, int64[2, 4] l, float[3] w) => (float y)"
    "{ y = NegativeLogLikelihoodLoss(x, l, w) }",
    "reverse": "(float[7, 3] x, int64[3] n) => (float[7, 3] y) { y = ReverseSequence(x, n) }",
    "regions": "(float[2, 3, 8, 8] x, float[5, 4] r, int64[5] i) => (float[5, 3, 2, 2] y)"
    "{ y = RoiAlign <output_height = 2, output_width = 2> (x, r, i) }",
    "function": "(float[9] x) => (float[9] y) { y = Mish(x) }",
    "no input": "() => (float[4] y) { y = RandomUniform <shape = [4]> () }",
    "an axis that is no node's name": "(float[3, 3] x) => (float[3, 3] y)"
    '{ y = Relu <__checkmate = "copy"> (x) }',
}  # fmt: skip


@pytest.mark.parametrize("body", MEASURABLE.values(), ids=MEASURABLE)
def test_an_op_runs_alone(body: str, tmp_path: Path, worker: Worker) -> None:
    node, around = look(tmp_path, body)
    assert measure_op(node, around, worker, QUICK).time_ns > 0


UNKNOWN_STEERING = {
    "reshape": ("Reshape", ["f 6 4", "i 2"], ["f 8 3"]),
    "expand": ("Expand", ["f 1 4", "i 2"], ["f 5 4"]),
    "constant of shape": ("ConstantOfShape", ["i 3"], ["f 2 3 4"]),
    "tile": ("Tile", ["f 2 3", "i 2"], ["f 4 9"]),
    "slice": ("Slice", ["f 9 8", "i 1", "i 1"], ["f 9 5"]),
    "pad": ("Pad", ["f 2 3", "i 4"], ["f 4 6"]),
    "top k": ("TopK", ["f 9 8", "i 1"], ["f 9 3", "i 9 3"]),
    "range": ("Range", ["i", "i", "i"], ["i 7"]),
    "reduce": ("ReduceSum", ["f 9 8", "i 1"], ["f 9 1"]),
    "cumulate": ("CumSum", ["f 9 8", "i"], ["f 9 8"]),
    "one hot": ("OneHot", ["i 9", "i", "f 2"], ["f 9 5"]),
    "split": ("Split", ["f 9 4", "i 2"], ["f 5 4", "f 4 4"]),
    "resize by sizes": ("Resize", ["f 1 2", "", "", "i 2"], ["f 2 4"]),
    "resize by scales": ("Resize", ["f 1 2", "", "f 2"], ["f 2 4"]),
    "window": ("HannWindow", ["i"], ["f 9"]),
    "triangle": ("Trilu", ["f 4 4", "i"], ["f 4 4"]),
}


def make_type(text: str) -> TensorType:
    kind, *shape = text.split()
    return TensorType({"f": 1, "i": 7}[kind], tuple(map(int, shape)))


@pytest.mark.parametrize("case", UNKNOWN_STEERING.values(), ids=UNKNOWN_STEERING)
def test_shapes_and_axes_that_are_known_only_at_run_time_are_made_up_to_fit(
    case: tuple[str, list[str], list[str]], worker: Worker
) -> None:
    op_type, reads, makes = case
    types = {f"in{i}": make_type(text) for i, text in enumerate(reads) if text}
    types |= {f"out{i}": make_type(text) for i, text in enumerate(makes)}
    node = onnx.helper.make_node(
        op_type,
        [f"in{i}" if text else "" for i, text in enumerate(reads)],
        [f"out{i}" for i in range(len(makes))],
    )
    around = Surroundings(types, {}, frozenset(), {"": 18}, 8)
    # The outputs are bound with the shapes of the model, so another shape would be refused.
    assert measure_op(node, around, worker, QUICK).time_ns > 0


@pytest.mark.parametrize(
    ("case", "upper"),
    [
        ("gather", 5),
        ("gather last", 2),
        ("gather elements", 3),
        ("gather nd", 3),
        ("scatter elements", 3),
        ("scatter nd", 3),
        ("one hot", 3),
        ("gather of one", 1),
        ("unpool", 16),
    ],
)
def test_indices_reach_all_of_what_they_index_and_no_further(
    case: str, upper: int, tmp_path: Path
) -> None:
    node, around = look(tmp_path, MEASURABLE[case])
    assert [spec.upper for spec in build_one_op(node, around, 1).inputs if spec.upper] == [upper]


def test_copies_share_nothing_and_keep_what_steers_them(tmp_path: Path) -> None:
    node, around = look(
        tmp_path,
        "(float[2, 3] x, float[2, 3] z) => (float[6] y)"
        "<int64[1] s = {6}> { a = Add(x, z) y = Reshape(a, s) }",
    )
    assert around.outputs == {"y"}
    model = build_one_op(node, around, 3)
    graph = model.proto.graph
    onnx.checker.check_model(model.proto, full_check=True)
    assert [spec.shape for spec in model.inputs] == [(2, 3)] * 3
    assert [spec.shape for spec in model.outputs] == [(6,)] * 3
    assert len({name for n in graph.node for name in (*n.input, *n.output)}) == 9
    assert [list(onnx.numpy_helper.to_array(t)) for t in graph.initializer] == [[6]] * 3


def test_a_view_is_read_and_not_bound_as_that_would_copy_it(tmp_path: Path, worker: Worker) -> None:
    path = save(
        tmp_path,
        "view (float[2, 3] x) => (float[6] z) <int64[1] s = {6}> { y = Reshape(x, s) z = Exp(y) }",
    )
    model = read_model(path, {})
    around, (view, _) = survey(model), model.nodes
    found = build_one_op(view, around, 2)
    onnx.checker.check_model(found.proto, full_check=True)
    assert [node.op_type for node in found.proto.graph.node] == ["Reshape", "Size"] * 2
    assert [spec.shape for spec in found.outputs] == [()] * 2
    cost = measure_op(view, around, worker, QUICK)
    assert cost.time_ns > 0
    assert cost.workspace_nbytes == 0


def test_what_is_made_on_the_host_is_bound_there_whatever_the_provider(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        "hosts (float[2, 3] x) => (int64[2] s, float[6] z, float[2, 3] e)"
        "<int64[1] flat = {6}> { s = Shape(x) y = Reshape(x, flat) z = Neg(y) e = Exp(x) }",
    )
    model = read_model(path, {})
    around = survey(model)
    found = [build_one_op(node, around, 2) for node in model.nodes]
    assert [[spec.on_host for spec in one.outputs] for one in found] == [
        [True, True], [True, True], [False, False], [False, False],
    ]  # fmt: skip
    task = TimeTask("m", Settings("cuda"), (), found[0].outputs, 0, 1, 0, "allocator")
    read = read_task(write_task(task))
    assert read == task
    assert allocate(found[0].outputs[0], task.settings).device_name() == "cpu"


@pytest.mark.skipif(HAS_DRIVER, reason="needs a machine without an NVIDIA driver")
def test_all_else_is_bound_on_the_device() -> None:
    with pytest.raises(RuntimeError, match=r"(?i)cuda|device"):
        allocate(TensorSpec("y", 1, (2,)), Settings("cuda"))


def test_large_weights_are_bound_like_inputs(tmp_path: Path) -> None:
    types = {"x": TensorType(1, (1, 600)), "w": TensorType(1, (600, 600))} | {
        "y": TensorType(1, (1, 600))
    }
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    around = Surroundings(types, {}, frozenset({"w"}), {"": 18}, 8)
    assert [spec.name for spec in build_one_op(node, around, 1).inputs] == ["0/x", "0/w"]


def test_the_workspace_of_where_is_two_copies_of_its_result(tmp_path: Path, worker: Worker) -> None:
    node, around = look(
        tmp_path,
        "(bool[4096] c, float[4096] a, float[4096] b) => (float[4096] y) { y = Where(c, a, b) }",
    )
    assert measure_op(node, around, worker, QUICK).workspace_nbytes == 2 * 4096 * 4


def test_the_result_of_sum_takes_the_place_of_what_it_let_go(
    tmp_path: Path, worker: Worker
) -> None:
    names = [f"x{i}" for i in range(5)]
    given = ", ".join(f"float[4096] {name}" for name in names)
    node, around = look(tmp_path, f"({given}) => (float[4096] y) {{ y = Sum({', '.join(names)}) }}")
    # Two partial sums at a time, the last of them beside the result.
    assert measure_op(node, around, worker, QUICK).workspace_nbytes == 4096 * 4


@pytest.mark.parametrize(
    "body",
    [
        "(float[2, 8, 40, 40] x, float[9, 8, 3, 3] w) => (float[2, 9, 38, 38] y){ y = Conv(x, w) }",
        "(float[2, 8, 40, 40] x, float[8, 9, 3, 3] w) => (float[2, 9, 42, 42] y)"
        "{ y = ConvTranspose(x, w) }",
        "(float[64, 64] x, float[64, 64] w) => (float[64, 64] y) { y = MatMul(x, w) }",
    ],
)
def test_counted_workspace_agrees_with_the_statistics(
    body: str, tmp_path: Path, worker: Worker
) -> None:
    node, around = look(tmp_path, body)
    model = build_one_op(node, around, 1)
    path = tmp_path / "one.onnx"
    path.write_bytes(model.proto.SerializeToString())
    counted, listed = (
        worker.ask(
            TimeTask(str(path), QUICK.settings, model.inputs, model.outputs, 0, 1, 0, by)  # type: ignore[arg-type]
        )["workspace_nbytes"]
        for by in ("allocator", "statistics")
    )
    assert isinstance(counted, int)
    assert isinstance(listed, int)
    assert counted <= listed < counted + 1024
    assert (counted > 0) == (node.op_type != "MatMul")


def test_an_op_with_a_subgraph_is_named(tmp_path: Path) -> None:
    node, around = look(
        tmp_path,
        "(bool c, float[2] x) => (float[2] y) { [choice] y = If (c)"
        " <then_branch = t () => (float[2] a) { a = Exp(x) },"
        " else_branch = e () => (float[2] b) { b = Neg(x) }> }",
    )
    with pytest.raises(UnmeasurableError, match="op 'choice' \\(If\\) has a subgraph"):
        build_one_op(node, around, 1)


def test_an_op_without_a_kernel_is_named(worker: Worker) -> None:
    node = onnx.helper.make_node("NoSuchOp", ["x"], ["y"], name="odd", domain="com.example")
    types = {"x": TensorType(1, (2,)), "y": TensorType(1, (2,))}
    around = Surroundings(types, {}, frozenset(), {"": 18, "com.example": 1}, 8)
    with pytest.raises(RunError, match="op 'odd' \\(NoSuchOp\\)"):
        measure_op(node, around, worker, QUICK)


def test_an_op_larger_than_the_memory_is_not_run(tmp_path: Path, worker: Worker) -> None:
    node, around = look(tmp_path, "(float[1000] x) => (float[1000] y) { [large] y = Exp(x) }")
    small = Effort(QUICK.settings, memory_nbytes=7999, max_runs=1, max_ns=0)
    with pytest.raises(OutOfMemoryError, match=r"op 'large' \(Exp\) take 7.81 KiB"):
        measure_op(node, around, worker, small)
