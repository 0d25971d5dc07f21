"""ONNX files as graphs."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from checkmate.costs import unit_costs
from checkmate.errors import GraphError, InputError, UsageError
from checkmate.graph import Graph, OpId, Tensor
from checkmate.liveness import insert_frees
from checkmate.onnxio.digest import digest_model
from checkmate.onnxio.effects import find_races
from checkmate.onnxio.load import load_proto
from checkmate.onnxio.read import read_model
from checkmate.problem import Problem
from checkmate.simulate import simulate
from onnx_models import GRAPHS, TRAINING_MLP, save, save_proto


def tensor(graph: Graph, name: str) -> Tensor:
    return next(t for t in graph.tensors if t.name == name)


def names(graph: Graph) -> list[str]:
    return [node.name for node in graph.ops]


def test_sizes_follow_from_bound_dimensions(tmp_path: Path) -> None:
    graph = read_model(save(tmp_path, TRAINING_MLP), {"N": 10}).graph
    assert tensor(graph, "h1").nbytes == 10 * 64 * 4
    assert tensor(graph, "m1").nbytes == 10 * 64
    assert tensor(graph, "x").producer is None
    assert tensor(graph, "w1").nbytes == 64 * 64 * 4


def test_an_unbound_dimension_is_named_with_its_option(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="input 'x' has the symbolic dimension 'N'") as caught:
        read_model(save(tmp_path, TRAINING_MLP), {})
    assert caught.value.hint == "bind it with --dim N=VALUE"


def test_a_dimension_that_no_input_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no input has a dimension 'M'") as caught:
        read_model(save(tmp_path, TRAINING_MLP), {"N": 1, "M": 2})
    assert caught.value.hint == "symbolic dimensions: N"


def test_backward_ops_depend_on_the_gradient_and_the_rest_does_not(tmp_path: Path) -> None:
    graph = read_model(save(tmp_path, TRAINING_MLP), {"N": 1}).graph
    backward = {node.outputs[0] for node in graph.ops if node.backward}
    makes = {graph.tensors[t].name for t in backward}
    assert {"dy", "dw3", "da2", "dh2", "dw2", "da1", "dh1", "dw1"} <= makes
    assert not makes & {"h1", "a1", "y", "loss", "a2t", "a1t", "xt", "m1"}


def test_what_the_file_says_of_inner_shapes_is_not_believed(tmp_path: Path) -> None:
    proto = onnx.load(save(tmp_path, TRAINING_MLP))
    stale = onnx.helper.make_tensor_value_info("h1", onnx.TensorProto.FLOAT, ["unk__0", 3])
    proto.graph.value_info.append(stale)
    graph = read_model(save_proto(tmp_path, proto), {"N": 2}).graph
    assert tensor(graph, "h1").nbytes == 2 * 64 * 4


def test_shapes_that_are_computed_are_followed(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        """g (float[N, 6] x) => (float[M, 3] y) <int64[1] zero = {0}, int64[1] last = {-1}> {
            shape = Shape(x)
            n = Gather(shape, zero)
            size = Size(x)
            half = Div(size, n)
            tail = Concat <axis = 0> (n, last)
            flat = Reshape(x, tail)
            big = ConstantOfShape <value = float[1] {0.0}> (n)
            rows = Unsqueeze(big, last)
            y = Add(flat, rows)
        }""",
    )
    graph = read_model(path, {"N": 4}).graph
    assert tensor(graph, "big").nbytes == 4 * 4
    assert tensor(graph, "y").nbytes == 4 * 6 * 4


def test_a_size_that_depends_on_data_is_refused_by_name(tmp_path: Path) -> None:
    path = save(tmp_path, "g (float[4] x) => (int64[A, B] y) { y = NonZero(x) }")
    with pytest.raises(InputError, match=r"tensor 'y', made by NonZero .*dimension \(axis 1 of 2"):
        read_model(path, {})


def test_an_op_that_onnx_does_not_know_is_refused_by_name(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["" : 18, "com.acme" : 1]>\n'
    model = onnx.parser.parse_model(
        text + "g (float[N] x) => (float[4] y) { y = com.acme.Wobble(x) }"
    )
    with pytest.raises(InputError, match=r"com.acme:Wobble .* is not known to onnx.* tensor 'y'"):
        read_model(save_proto(tmp_path, model), {"N": 4})


def test_a_sequence_is_refused_by_name(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        """g (float[4] x, int64 i) => (float[4] y) {
            s = SequenceConstruct(x)
            y = SequenceAt(s, i)
        }""",
    )
    with pytest.raises(InputError, match=r"tensor 's', made by SequenceConstruct .* is a sequence"):
        read_model(path, {})


def test_strings_are_refused_by_name(tmp_path: Path) -> None:
    path = save(tmp_path, "g (string[4] x) => (string[4] y) { y = Identity(x) }")
    with pytest.raises(InputError, match="tensor 'x' holds strings"):
        read_model(path, {})


def test_views_share_the_storage_of_their_source(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        """g (float[4, 2] x) => (float[4, 2] y, float[8] z) <int64[1] flat = {8}> {
            a = Relu(x)
            v = Flatten(a)
            y = Relu(v)
            z = Reshape(a, flat)
        }""",
    )
    graph = read_model(path, {}).graph
    source = tensor(graph, "v").source
    assert source is not None
    assert graph.tensors[source].name == "a"
    assert tensor(graph, "v").nbytes == 0
    # A graph output is handed to the caller, so onnxruntime copies.
    assert tensor(graph, "z").nbytes == 32


def test_constants_and_parameters_are_resident_and_unused_ones_are_not_counted(
    tmp_path: Path,
) -> None:
    path = save(
        tmp_path,
        """g (float[2] x) => (float[2] y) <float[2] w = {1.0, 2.0}, float[2] unused = {3.0, 4.0}> {
            c = Constant <value = float[2] {1.0, 1.0}> ()
            a = Add(x, w)
            y = Add(a, c)
        }""",
    )
    graph = read_model(path, {}).graph
    assert [t.name for t in graph.tensors if t.producer is None] == ["x", "w", "c"]
    assert len(graph.ops) == 2


@pytest.mark.parametrize(
    ("call", "recomputable"),
    [
        ("RandomNormalLike(x)", False),
        ("RandomNormalLike <seed = 1.0> (x)", False),
        ("Dropout(x, ratio, yes)", False),
        ("Dropout(x, ratio, unknown)", False),
        ("Dropout(x, ratio, no)", True),
        ("Dropout(x)", True),
        ("Relu(x)", True),
    ],
)
def test_random_ops_may_run_once(tmp_path: Path, call: str, recomputable: bool) -> None:
    path = save(
        tmp_path,
        f"""g (float[4] x, bool unknown) => (float[4] y)
            <float ratio = {{0.5}}, bool yes = {{1}}, bool no = {{0}}> {{ y = {call} }}""",
    )
    assert read_model(path, {}).graph.ops[0].recomputable is recomputable


@pytest.mark.parametrize(("reduction", "races"), [("add", True), ("none", False)])
def test_a_scatter_that_adds_is_known_to_race(tmp_path: Path, reduction: str, races: bool) -> None:
    path = save(
        tmp_path,
        f"""g (float[4] x, int64[3, 1] i, float[3] u) => (float[4] y) {{
            y = ScatterND <reduction = "{reduction}"> (x, i, u)
        }}""",
    )
    assert bool(find_races([*onnx.load(path).graph.node])) is races


def test_control_flow_reads_what_its_bodies_capture_and_may_run_once(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        """g (bool c, float[4] x) => (float[4] y) {
            a = Relu(x)
            y = If (c) <
                then_branch = t () => (float[4] p) { p = Exp(a) },
                else_branch = e () => (float[4] q) { q = Identity(x) }
            >
        }""",
    )
    graph = read_model(path, {}).graph
    assert [graph.tensors[t].name for t in graph.ops[1].inputs] == ["c", "a", "x"]
    assert not graph.ops[1].recomputable


def test_shape_ops_come_right_after_what_they_read(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        """g (float[4] x) => (float[4] y, int64[1] s) {
            a = Relu(x)
            b = Exp(a)
            s = Shape(a)
            y = Exp(b)
        }""",
    )
    graph = read_model(path, {}).graph
    assert [graph.tensors[node.outputs[0]].name for node in graph.ops] == ["a", "s", "b", "y"]


def test_shuffled_nodes_are_sorted(tmp_path: Path) -> None:
    proto = onnx.load(save(tmp_path, TRAINING_MLP))
    sorted_graph = read_model(save_proto(tmp_path, proto), {"N": 1}).graph
    nodes = list(proto.graph.node)
    del proto.graph.node[:]
    proto.graph.node.extend(reversed(nodes))
    shuffled = read_model(save_proto(tmp_path, proto), {"N": 1}).graph
    assert {t.name for t in shuffled.tensors} == {t.name for t in sorted_graph.tensors}
    assert len(shuffled.ops) == len(sorted_graph.ops)


def test_a_cycle_is_named(tmp_path: Path) -> None:
    path = save(
        tmp_path, "g (float[4] x) => (float[4] y) { a = Add(x, b) b = Relu(a) y = Relu(b) }"
    )
    with pytest.raises(GraphError, match="has a cycle: Add 'making a' <- Relu 'making b' <- Add"):
        read_model(path, {})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{ y = Add(x, nowhere) }", "reads 'nowhere', which nothing makes"),
        ("{ a = Relu(x) a = Exp(x) y = Relu(a) }", "tensor 'a' has two producers"),
        ("{ x = Relu(x) y = Relu(x) }", "makes 'x', which is an input"),
        ("{ a = Relu(x) }", "graph output 'y' is made by nothing"),
    ],
)
def test_a_graph_that_contradicts_itself_is_refused(
    tmp_path: Path, body: str, message: str
) -> None:
    with pytest.raises(GraphError, match=message):
        read_model(save(tmp_path, f"g (float[4] x) => (float[4] y) {body}"), {})


def test_unnamed_and_equal_names_are_made_unique(tmp_path: Path) -> None:
    proto = onnx.load(save(tmp_path, "g (float[4] x) => (float[4] y) { a = Relu(x) y = Exp(a) }"))
    assert names(read_model(save_proto(tmp_path, proto), {}).graph) == ["Relu_0", "Exp_1"]
    for node in proto.graph.node:
        node.name = "same"
    assert names(read_model(save_proto(tmp_path, proto), {}).graph) == ["same_0", "same_1"]


def test_model_local_functions_are_inlined(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 18, "local" : 1]>
        g (float[4] x) => (float[4] y) { y = local.twice(x) }
        <opset_import: ["" : 18], domain: "local"> twice (a) => (b) { c = Relu(a) b = Exp(c) }"""
    path = save_proto(tmp_path, onnx.parser.parse_model(text))
    assert len(read_model(path, {}).graph.ops) == 2


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "a/../../b", "C:\\weights", ""])
def test_external_data_outside_the_folder_is_refused(tmp_path: Path, location: str) -> None:
    proto = onnx.load(
        save(tmp_path, "g (float[2] x, float[2] w) => (float[2] y) { y = Add(x, w) }")
    )
    weight = onnx.TensorProto(name="w", data_type=1, dims=[2])
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value=location)
    proto.graph.initializer.append(weight)
    with pytest.raises(InputError, match=r"tensor 'w' .* outside the model's folder"):
        load_proto(save_proto(tmp_path, proto))


def test_external_data_is_not_read(tmp_path: Path) -> None:
    proto = onnx.load(
        save(tmp_path, "g (float[2] x, float[2] w) => (float[2] y) { y = Add(x, w) }")
    )
    weight = onnx.TensorProto(name="w", data_type=1, dims=[2])
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="not-there.bin")
    proto.graph.initializer.append(weight)
    assert tensor(read_model(save_proto(tmp_path, proto), {}).graph, "w").nbytes == 8


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "is empty"), (b"not onnx at all", "is not an ONNX model"), (b"\x08\x08", "not a comp")],
)
def test_a_file_that_is_no_model_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        load_proto(path)


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    content = (GRAPHS / "vgg16-tiny-bN.onnx").read_bytes()
    path = tmp_path / "model.onnx"
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match="do not parse"):
        load_proto(path)


@pytest.mark.parametrize(
    ("name", "live_gib"),
    [
        ("vgg16-full-b256", 18.3), ("mobilenetv1-full-b512", 21.3), ("resnet50-full-b128", 10.7),
        ("unet-full-b32", 43.3), ("gpt2-full-b8", 16.0),
    ],
)  # fmt: skip
def test_the_peak_of_the_full_graphs_is_known(name: str, live_gib: float) -> None:
    graph = read_model(GRAPHS / f"{name}.onnx", {}).graph
    schedule = insert_frees(graph, [OpId(i) for i in range(len(graph.ops))])
    peak = simulate(Problem(graph, unit_costs(graph)), schedule).peak
    assert round(peak.live_nbytes / 2**30, 1) == live_gib


def test_a_digest_survives_saving_again_and_not_a_change(tmp_path: Path) -> None:
    proto = onnx.load(save(tmp_path, TRAINING_MLP))
    digest = digest_model(read_model(save_proto(tmp_path, proto), {"N": 4}))
    proto.doc_string = "saved again"
    proto.producer_name = "another tool"
    del proto.graph.value_info[:]
    assert digest_model(read_model(save_proto(tmp_path, proto), {"N": 4})) == digest
    assert digest_model(read_model(save_proto(tmp_path, proto), {"N": 5})) != digest
    proto.graph.node[1].op_type = "Sigmoid"
    assert digest_model(read_model(save_proto(tmp_path, proto), {"N": 4})) != digest
