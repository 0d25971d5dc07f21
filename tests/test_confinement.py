"""External data stays in the model's folder, wherever in a model a tensor says where it lies."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from checkmate.errors import InputError
from checkmate.onnxio.load import has_external_data
from checkmate.onnxio.read import read_model
from checkmate.onnxio.weights import measure_weights
from onnx_models import save, save_proto
from test_cli import checkmate

HEAD = '<ir_version: 9, opset_import: ["" : 18, "local" : 1]>\n'
PLAIN = "g (float[4] x) => (float[4] y) { y = Exp(x) }"
BRANCHES = """g (float[4] x, bool k) => (float[4] y) {
    y = If (k) <
        then_branch = t () => (float[4] p) { p = Add(x, w) },
        else_branch = e () => (float[4] q) { q = Exp(x) }
    >
}"""
LOOP = """g (float[4] x) => (float[4] y) <int64 n = {2}> {
    y = Loop (n, "", x) <body = b (int64 i, bool c, float[4] v)
      => (bool d, float[4] u) { d = Identity(c) u = Add(v, w) }>
}"""
CALL = """g (float[4] x) => (float[4] y) { y = local.f(x) }
<opset_import: ["" : 18], domain: "local"> f (a) => (b) { b = Add(a, w) }"""

_opened: list[str] = []
sys.addaudithook(lambda event, given: _opened.append(str(given[0])) if event == "open" else None)


@contextmanager
def watch_opened() -> Iterator[list[str]]:
    """Yield the files that are opened meanwhile, in the order in which they are."""
    start = len(_opened)
    seen: list[str] = []
    yield seen
    seen.extend(_opened[start:])


def parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEAD + text)


def make_tensor(location: str) -> onnx.TensorProto:
    tensor = onnx.TensorProto(name="w", data_type=1, dims=[4])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    return tensor


def make_constant(location: str) -> onnx.NodeProto:
    return helper.make_node("Constant", [], ["w"], value=make_tensor(location))


def put_in_constant(location: str) -> onnx.ModelProto:
    proto = parse(PLAIN)
    proto.graph.node.insert(0, make_constant(location))
    return proto


def put_in_attribute(location: str) -> onnx.ModelProto:
    proto = parse(PLAIN)
    attribute = proto.graph.node[0].attribute.add(name="extra", type=onnx.AttributeProto.TENSORS)
    attribute.tensors.append(make_tensor(location))
    return proto


def put_in_sparse_constant(location: str) -> onnx.ModelProto:
    proto = parse(PLAIN)
    sparse = onnx.SparseTensorProto(values=make_tensor(location), dims=[4])
    sparse.indices.CopyFrom(numpy_helper.from_array(np.arange(4), "places"))
    proto.graph.node.insert(0, helper.make_node("Constant", [], ["w"], sparse_value=sparse))
    return proto


def put_in_branch_constant(location: str) -> onnx.ModelProto:
    proto = parse(BRANCHES)
    proto.graph.node[0].attribute[0].g.node.insert(0, make_constant(location))
    return proto


def put_in_branch(location: str) -> onnx.ModelProto:
    proto = parse(BRANCHES)
    proto.graph.node[0].attribute[0].g.initializer.append(make_tensor(location))
    return proto


def put_in_loop(location: str) -> onnx.ModelProto:
    proto = parse(LOOP)
    proto.graph.node[0].attribute[0].g.node.insert(0, make_constant(location))
    return proto


def put_in_function(location: str) -> onnx.ModelProto:
    proto = parse(CALL)
    proto.functions[0].node.insert(0, make_constant(location))
    return proto


def put_in_body_of_function(location: str) -> onnx.ModelProto:
    proto = parse(CALL)
    body = parse(BRANCHES).graph.node[0]
    body.attribute[0].g.initializer.append(make_tensor(location))
    proto.functions[0].node.append(body)
    return proto


def put_in_training(location: str) -> onnx.ModelProto:
    proto = parse(PLAIN)
    proto.training_info.add().algorithm.initializer.append(make_tensor(location))
    return proto


PLACES = [
    put_in_constant,
    put_in_attribute,
    put_in_sparse_constant,
    put_in_branch_constant,
    put_in_branch,
    put_in_loop,
    put_in_function,
    put_in_body_of_function,
    put_in_training,
]
Put = Callable[[str], onnx.ModelProto]


@pytest.mark.parametrize("kind", ["absolute", "above", "link"])
@pytest.mark.parametrize("put", PLACES)
def test_data_elsewhere_is_refused_and_never_opened(put: Put, kind: str, tmp_path: Path) -> None:
    secret, folder = tmp_path / "secret.bin", tmp_path / "models"
    secret.write_bytes(b"\0" * 16)
    folder.mkdir()
    (folder / "link").symlink_to(secret)
    location = {"absolute": str(secret), "above": "../secret.bin", "link": "link"}[kind]
    path = save_proto(folder, put(location))
    with watch_opened() as opened, pytest.raises(InputError) as refused:
        read_model(path, {})
    assert refused.value.exit_code == 3
    assert refused.value.message.startswith("tensor 'w' of ")
    assert refused.value.message.endswith(f"at {location!r}, outside the model's folder")
    assert opened == [str(path)]


@pytest.mark.parametrize("put", PLACES)
def test_data_beside_the_model_is_found_wherever_it_is_named(put: Put) -> None:
    proto = put("w.bin")
    assert has_external_data(proto)
    assert measure_weights(proto) == {"w.bin": 0}


@pytest.mark.parametrize("command", ["solve", "show", "export"])
def test_commands_end_with_3(command: str, tmp_path: Path) -> None:
    save_proto(tmp_path, put_in_function("/etc/passwd"))
    options = {"solve": ("--budget", "100%"), "show": (), "export": ("-o", "p.json")}[command]
    done = checkmate(command, "model.onnx", *options, cwd=tmp_path)
    assert done.returncode == 3
    assert "external data at '/etc/passwd', outside the model's folder" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


def test_data_at_two_places_is_refused(tmp_path: Path) -> None:
    proto = onnx.load(save(tmp_path, PLAIN))
    tensor = make_tensor("/etc/passwd")
    tensor.external_data.add(key="location", value="w.bin")
    proto.graph.initializer.append(tensor)
    with pytest.raises(InputError, match=r"data at 2 places, '/etc/passwd' and 'w\.bin'"):
        read_model(save_proto(tmp_path, proto), {})


def test_a_damaged_tensor_within_a_function_is_refused(tmp_path: Path) -> None:
    proto = parse(CALL)
    weight = onnx.TensorProto(name="w", data_type=999, dims=[4])
    proto.functions[0].node.insert(0, helper.make_node("Constant", [], ["w"], value=weight))
    with pytest.raises(InputError, match=r"w of Constant .* has unknown element type 999"):
        read_model(save_proto(tmp_path, proto), {})


def test_a_function_of_nodes_without_inputs_is_refused(tmp_path: Path) -> None:
    proto = parse(CALL.replace("Add(a, w)", "Add()"))
    with pytest.raises(InputError, match="has 0 inputs and 1 outputs, but takes at least 2"):
        read_model(save_proto(tmp_path, proto), {})
