"""Graphs that onnxruntime optimized: what they keep, how they are planned, how they are checked."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from checkmate.cli.drift import judge_drift
from checkmate.cli.record import Held, make_record
from checkmate.cli.source import Asked, Source, read_source, read_source_of
from checkmate.engine.solve import run_baseline, solve
from checkmate.errors import InputError, MismatchError, RunError, UsageError
from checkmate.formats.schedule_json import (
    Lineage,
    Optimization,
    ScheduleRecord,
    parse_schedule,
    render_schedule,
    resolve_instructions,
)
from checkmate.onnxio.digest import digest_model
from checkmate.onnxio.effects import find_pin
from checkmate.onnxio.model import Model
from checkmate.onnxio.optimized import prepare_model, restore_order
from checkmate.onnxio.read import read_model
from checkmate.onnxio.write import place_planned, render_model, render_planned
from checkmate.problem import Problem
from checkmate.profiler.flops import count_flops, estimate_costs
from checkmate.profiler.specify import specify_inputs
from checkmate.profiler.surroundings import survey
from checkmate.runtime.arrays import SavedArrays, compare_outputs, save_arrays
from checkmate.runtime.execute import RunOptions, RunResult, run_model
from checkmate.runtime.optimize import optimize_model
from checkmate.runtime.protocol import Settings
from checkmate.search.finding import Limits
from onnx_models import DEEP_MLP, GRAPHS, TRAINING_MLP, save, save_proto

TINY = ("gpt2", "mobilenetv1", "resnet50", "unet", "vgg16")


def tiny(name: str) -> Path:
    return GRAPHS / f"{name}-tiny-bN.onnx"


def ask(optimize: Optimization, n: int = 8) -> Asked:
    return Asked({"N": n}, costs="flops", provider="cpu", optimize=optimize)


def peak_nbytes(model: Model) -> int:
    return run_baseline(Problem(model.graph, estimate_costs(model))).peak.nbytes


def run(path: Path, model: Model, outputs: Path) -> RunResult:
    options = RunOptions(Settings(threads=1), outputs=outputs)
    return run_model(path, specify_inputs(model), options)


def plan_at(source: Source, share: int) -> ScheduleRecord:
    baseline = run_baseline(source.problem)
    plan = solve(source.problem, baseline.peak.nbytes * share // 100, "greedy", Limits())
    return make_record(source, plan, baseline, Held("run", "file"))


def weighted(folder: Path, *, is_external: bool) -> Path:
    """Write the multilayer perceptron with ``w1`` and ``w2`` as initializers of one value."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]>\n{DEEP_MLP}')
    for name in ("w1", "w2"):
        item = next(item for item in model.graph.input if item.name == name)
        model.graph.input.remove(item)
        value = np.full((64, 64), 0.01, np.float32)
        tensor = onnx.numpy_helper.from_array(value, name)
        if is_external:
            (folder / name).write_bytes(value.tobytes())
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value=name)
        model.graph.initializer.append(tensor)
    return save_proto(folder, model)


@pytest.mark.parametrize("level", ["basic", "extended"])
@pytest.mark.parametrize("name", TINY)
def test_inputs_and_outputs_keep_names_and_order_and_the_peak_does_not_grow(
    name: str, level: Optimization
) -> None:
    model = read_model(tiny(name), {"N": 64})
    optimized = optimize_model(model, level, "cpu").model
    for side in ("input", "output"):
        before, after = (getattr(m.proto.graph, side) for m in (model, optimized))
        assert [item.name for item in after] == [item.name for item in before]
    assert len(optimized.nodes) < len(model.nodes)
    # Folding holds a few shapes throughout.
    assert peak_nbytes(optimized) <= peak_nbytes(model) + 32 * 2**10


def test_ops_that_are_kept_run_in_the_order_of_the_given_file() -> None:
    model = read_model(tiny("resnet50"), {"N": 8})
    optimized = optimize_model(model, "extended", "cpu").model
    makers = {name: i for i, node in enumerate(model.nodes) for name in node.output}
    places = [
        makers[node.output[0]]
        for node in optimized.nodes
        if node.output[0] in makers and node.op_type not in ("Shape", "Size")
    ]
    assert len(places) > 700
    # Where equal ops were merged, what is left runs where the first of them ran.
    assert sum(a > b for a, b in pairwise(places)) <= 2


def test_a_new_node_runs_just_before_its_first_reader() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["late"]),
        helper.make_node("Relu", ["x"], ["new"]),
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Relu", ["new"], ["b"]),
        helper.make_node("Relu", ["a"], ["c"]),
    ]
    ordered = restore_order(nodes, {"a": 0, "c": 1, "b": 2, "late": 3})
    assert [node.output[0] for node in ordered] == ["a", "c", "new", "b", "late"]


def test_a_merged_node_runs_where_its_first_reader_needs_it() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["b"]),
        helper.make_node("Relu", ["b"], ["a"]),
        helper.make_node("Relu", ["a"], ["z"]),
    ]
    ordered = restore_order(nodes, {"a": 0, "z": 1, "b": 2})
    assert [node.output[0] for node in ordered] == ["b", "a", "z"]


@pytest.mark.parametrize("name", ["gpt2", "vgg16"])
def test_the_rewritten_graph_has_the_peak_and_the_bits_of_the_optimized_one(
    name: str, tmp_path: Path
) -> None:
    source = read_source(tiny(name), ask("extended", 64))
    model = source.model
    assert model is not None
    record = plan_at(source, 85)
    schedule = resolve_instructions(record, model.graph)
    rewritten = tmp_path / "rewritten.onnx"
    rewritten.write_bytes(render_model(model, schedule, rewritten, "run"))
    with place_planned(model) as planned:
        before = run(planned, model, tmp_path / "before.npz")
    after = run(rewritten, model, tmp_path / "after.npz")
    given = run(model.path, model, tmp_path / "given.npz")
    assert len(schedule.order) > len(model.nodes)
    assert after.outputs is not None
    assert before.outputs is not None
    assert given.outputs is not None
    assert compare_outputs(before.outputs, after.outputs) == ()
    assert judge_drift(given.outputs, after.outputs).error < 1e-5
    assert after.run_nbytes[0] < before.run_nbytes[0]


def test_the_measured_peak_is_the_planned_one(tmp_path: Path) -> None:
    # Its peak is at an op without workspace, so that counted costs tell all.
    source = read_source(tiny("gpt2"), ask("extended", 64))
    model = source.model
    assert model is not None
    record = plan_at(source, 70)
    path = tmp_path / "rewritten.onnx"
    path.write_bytes(render_model(model, resolve_instructions(record, model.graph), path))
    result = run(path, model, tmp_path / "out.npz")
    fed = {spec.name for spec in specify_inputs(model)}
    held = sum(t.nbytes for t in model.graph.tensors if t.producer is None and t.name not in fed)
    assert result.peak_nbytes is not None
    measured = result.peak_nbytes + held
    assert record.peak_nbytes <= measured <= record.peak_nbytes + 2**10


def test_a_schedule_is_checked_against_the_given_model_and_against_the_optimized_one(
    tmp_path: Path,
) -> None:
    path = save(tmp_path, DEEP_MLP)
    source = read_source(path, ask("extended", 512))
    record = parse_schedule(render_schedule(plan_at(source, 95)).encode())
    lineage = record.graph.lineage
    given = digest_model(read_model(path, {"N": 512}))
    assert lineage == Lineage(given, "extended", onnxruntime.__version__, "cpu")
    asked = Asked(record.dims, costs="flops")
    assert read_source_of(record, path, asked).sha256 == record.graph.sha256
    assert source.model is not None
    optimized = tmp_path / "optimized.onnx"
    optimized.write_bytes(render_planned(source.model, optimized))
    again = read_source_of(record, optimized, asked)
    assert again.sha256 == record.graph.sha256
    assert again.lineage.optimization == "none"
    assert again.model is not None
    assert not again.model.is_optimized


def test_a_graph_of_another_onnxruntime_is_refused_with_both_versions(tmp_path: Path) -> None:
    path = save(tmp_path, DEEP_MLP)
    source = read_source(path, ask("extended", 512))
    text = render_schedule(plan_at(source, 95))
    other = text.replace(source.sha256, "0" * 64).replace(
        f'"onnxruntime": "{onnxruntime.__version__}"', '"onnxruntime": "1.19.0"'
    )
    record = parse_schedule(other.encode())
    with pytest.raises(InputError) as caught:
        read_source_of(record, path, Asked(record.dims, costs="flops"))
    assert "onnxruntime 1.19.0 (extended, cpu)" in caught.value.message
    assert f"onnxruntime {onnxruntime.__version__} (extended, cpu)" in caught.value.message


def test_a_model_that_changed_is_said_to_have_changed(tmp_path: Path) -> None:
    record = plan_at(read_source(save(tmp_path, DEEP_MLP), ask("extended", 512)), 95)
    path = save(tmp_path, DEEP_MLP.replace("Tanh", "Sigmoid"))
    with pytest.raises(InputError, match="but the model has digest"):
        read_source_of(record, path, Asked(record.dims, costs="flops"))


def test_no_optimization_keeps_every_node() -> None:
    source = read_source(tiny("vgg16"), ask("none"))
    assert source.lineage == Lineage(source.sha256)
    assert source.model is not None
    assert len(source.model.nodes) == 129
    assert source.model.path == tiny("vgg16")


def test_what_onnxruntime_cannot_run_is_refused_by_name_when_it_was_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = "g (float[2] x, float[2] dy) => (float[2] dx) { dx = com.microsoft.ReluGrad(dy, x) }"
    path = save(tmp_path, body)
    model = onnx.load(path)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    model.graph.node.append(helper.make_node("Relu", ["dx"], ["y"]))
    model.graph.value_info.append(helper.make_tensor_value_info("dx", 1, [2]))
    model.graph.output[0].name = "y"
    save_proto(tmp_path, model)
    with pytest.raises(RunError, match="ReluGrad") as caught:
        read_source(path, Asked({}, costs="flops", provider="cpu", optimize="basic"))
    assert caught.value.exit_code == 6
    assert caught.value.hint == "--optimize none keeps the graph as it is"
    by_default = Asked({}, costs="flops", provider="cpu", optimize=None)
    assert read_source(path, by_default).lineage.optimization == "none"
    # One note is enough: commands say that stock onnxruntime cannot run the model.
    assert capsys.readouterr().err == ""


def test_a_problem_has_nothing_to_optimize(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text("{}")
    with pytest.raises(UsageError, match="no --optimize"):
        read_source(path, Asked({}, optimize="basic"))


@pytest.mark.parametrize("is_external", [False, True])
def test_weights_are_neither_shown_nor_lost(tmp_path: Path, is_external: bool) -> None:
    path = weighted(tmp_path, is_external=is_external)
    model = read_model(path, {"N": 8})
    shown = prepare_model(model)
    assert not {"w1", "w2"} & {tensor.name for tensor in shown.graph.initializer}
    optimized = optimize_model(model, "extended", "cpu").model
    kept = {tensor.name: tensor for tensor in optimized.proto.graph.initializer}
    assert kept["w1"] == model.proto.graph.initializer[-2]
    assert {item.name for item in optimized.proto.graph.input} == {"x", "w3", "w4"}
    with place_planned(optimized) as planned:
        made = run(planned, optimized, tmp_path / "made.npz")
    given = run(path, model, tmp_path / "given.npz")
    assert made.outputs is not None
    assert given.outputs is not None
    assert judge_drift(given.outputs, made.outputs).error < 1e-5


def test_no_large_constant_is_folded(tmp_path: Path) -> None:
    body = """g (float[64] x) => (float[300, 64] y)
      <int64[2] shape = {300, 64}, float two = {2.0}> {
        ones = ConstantOfShape <value = float[1] {1.0}> (shape)
        twos = Mul(ones, two)
        y = Add(twos, x)
    }"""
    model = read_model(save(tmp_path, body), {})
    optimized = optimize_model(model, "basic", "cpu").model
    sizes = [t.nbytes for t in optimized.graph.tensors if t.producer is None]
    assert max(sizes) < 300 * 64 * 4
    assert {node.op_type for node in optimized.nodes} >= {"ConstantOfShape", "Add"}


def test_an_input_that_nothing_reads_stays(tmp_path: Path) -> None:
    body = "g (float[2] x, float[2] unread) => (float[2] y) { y = Relu(x) }"
    model = read_model(save(tmp_path, body), {})
    optimized = optimize_model(model, "extended", "cpu").model
    assert [item.name for item in optimized.proto.graph.input] == ["x", "unread"]


def test_an_optimizer_update_stays_pinned(tmp_path: Path) -> None:
    body = """g (float[2, 2] x, float[2, 2] w, float[2] b) => (float[2, 2] new) {
        moved = MatMul(x, w)
        new = Add(moved, b)
    }"""
    model = onnx.load(save(tmp_path, body))
    for node in model.graph.node:
        node.metadata_props.add(key="checkmate.phase", value="optimizer")
    optimized = optimize_model(read_model(save_proto(tmp_path, model), {}), "basic", "cpu").model
    assert [node.op_type for node in optimized.nodes] == ["Gemm"]
    assert not optimized.graph.ops[0].recomputable


def test_nodes_without_a_name_are_called_what_their_ops_are_called(tmp_path: Path) -> None:
    model = read_model(save(tmp_path, TRAINING_MLP), {"N": 2})
    optimized = optimize_model(model, "basic", "cpu").model
    names = {node.output[0]: op.name for op, node in zip(model.graph.ops, model.nodes, strict=True)}
    again = {
        node.output[0]: op.name
        for op, node in zip(optimized.graph.ops, optimized.nodes, strict=True)
        if node.op_type in ("Relu", "Greater", "Where")
    }
    assert len(again) == 6
    assert again.items() <= names.items()


def test_only_operator_sets_in_use_are_imported() -> None:
    model = read_model(tiny("vgg16"), {"N": 8})
    for level, domains in (("basic", [""]), ("extended", ["", "com.microsoft"])):
        optimized = optimize_model(model, level, "cpu").model
        assert [entry.domain for entry in optimized.proto.opset_import] == domains


FUSED = {
    "FusedMatMul": (helper.make_node("FusedMatMul", ["a", "b"], ["y"], transA=1), [4, 3], [4, 5]),
    "batch inside": (
        helper.make_node("FusedMatMul", ["a", "b"], ["y"], transBatchA=1, transBatchB=1),
        [3, 2, 4],
        [4, 2, 5],
    ),
    "batch inside, transposed": (
        helper.make_node("FusedMatMul", ["a", "b"], ["y"], transBatchA=1, transA=1),
        [4, 2, 3],
        [2, 4, 5],
    ),
    "FusedGemm": (
        helper.make_node("FusedGemm", ["a", "b"], ["y"], transB=1, activation="Relu"),
        [3, 4],
        [5, 4],
    ),
    "FusedConv": (
        helper.make_node("FusedConv", ["a", "b"], ["y"], pads=[1, 1, 1, 1], activation="Relu"),
        [2, 3, 8, 8],
        [4, 3, 3, 3],
    ),
    "BiasGelu": (helper.make_node("BiasGelu", ["a", "b"], ["y"]), [2, 3, 8], [8]),
    "QuickGelu": (helper.make_node("QuickGelu", ["a"], ["y"]), [2, 8], [8]),
    "SkipLayerNormalization": (
        helper.make_node("SkipLayerNormalization", ["a", "a", "b"], ["y"]),
        [2, 3, 8],
        [8],
    ),
}


@pytest.mark.parametrize("case", FUSED)
def test_fused_ops_are_read_with_the_shapes_that_onnxruntime_makes(
    case: str, tmp_path: Path
) -> None:
    node, *shapes = FUSED[case]
    node.domain, node.name = "com.microsoft", "fused"
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in zip("ab", shapes, strict=True)
    ]
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name="y")])
    graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    path = save_proto(tmp_path, helper.make_model(graph, opset_imports=opsets, ir_version=8))
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    feeds = {item.name: np.ones(item.shape, np.float32) for item in session.get_inputs()}
    made = session.run(None, feeds)[0]
    model = read_model(path, {})
    assert model.types["y"].shape == made.shape


def test_a_product_with_its_batch_inside_counts_what_it_multiplies(tmp_path: Path) -> None:
    node, *_ = FUSED["batch inside, transposed"]
    inputs = [
        helper.make_tensor_value_info("a", TensorProto.FLOAT, [4, 2, 3]),
        helper.make_tensor_value_info("b", TensorProto.FLOAT, [2, 4, 5]),
    ]
    node.domain = "com.microsoft"
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3, 5])]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "g", inputs, outputs)
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    model = read_model(save_proto(tmp_path, proto), {})
    assert count_flops(model.nodes[0], survey(model)) == 2 * (2 * 3 * 5) * 4


def test_fused_dropouts_may_run_only_once() -> None:
    for op_type in ("BiasDropout", "BitmaskDropout", "BitmaskBiasDropout"):
        node = helper.make_node(op_type, ["x", "b"], ["y", "mask"], domain="com.microsoft")
        assert find_pin(node, {}) == "random"


def test_numbers_that_moved_too_far_are_named(tmp_path: Path) -> None:
    ones = np.ones(3, np.float32)
    moved = {"one": ones, "two": ones * np.float32(1.1)}
    lost = {"one": ones, "two": np.array([1, np.nan, 1], np.float32)}
    files = [tmp_path / f"{i}.npz" for i in range(3)]
    for file, arrays in zip(files, ({"one": ones, "two": ones}, moved, lost), strict=True):
        save_arrays(file, arrays)
    given, *others = map(SavedArrays, files)
    assert judge_drift(given, given).error == 0
    for other in others:
        with pytest.raises(MismatchError, match="output 'two' of the optimized graph"):
            judge_drift(given, other)


def test_noise_around_zero_does_not_count_as_moved(tmp_path: Path) -> None:
    files = [tmp_path / "one.npz", tmp_path / "two.npz"]
    for file, sign in zip(files, (1, -1), strict=True):
        noise = np.full(3, sign * 1e-9, np.float32)
        save_arrays(file, {"loss": np.ones(1, np.float32), "bias_grad": noise})
    assert judge_drift(*map(SavedArrays, files)).error < 1e-4


def test_equal_optimizations_give_equal_bytes(tmp_path: Path) -> None:
    model = read_model(tiny("gpt2"), {"N": 8})
    paths = [tmp_path / "one.onnx", tmp_path / "two.onnx"]
    contents = [
        render_planned(optimize_model(model, "extended", "cpu").model, path) for path in paths
    ]
    assert contents[0] == contents[1]


def test_version_1_of_a_schedule_is_for_a_graph_as_it_is() -> None:
    text = (Path(__file__).parent / "golden" / "schedule-v1.json").read_text()
    rendered = json.loads(render_schedule(parse_schedule(text.encode())))
    assert rendered["version"] == 2
    assert rendered["graph"]["optimization"] == "none"
    assert rendered["graph"]["source_sha256"] == rendered["graph"]["sha256"]
