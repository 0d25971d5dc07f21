"""Models that cannot be: each is refused by name, none ends in a traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from checkmate.errors import InputError
from checkmate.onnxio.probe import build_probe
from checkmate.onnxio.read import read_model
from onnx_models import TRAINING_MLP, save, save_proto

Change = Callable[[onnx.ModelProto], object]


def weight(model: onnx.ModelProto) -> onnx.TensorProto:
    return model.graph.initializer[0]


def set_type(model: onnx.ModelProto) -> None:
    weight(model).data_type = 999


def cut_value(model: onnx.ModelProto) -> None:
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.arange(4, dtype="f4"), "w4"))
    model.graph.initializer[-1].raw_data = b"\0\0\0"


def add_huge(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 2**62


def add_negative(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = -4


def drop_inputs(model: onnx.ModelProto) -> None:
    del model.graph.node[0].input[:]


def drop_outputs(model: onnx.ModelProto) -> None:
    del model.graph.node[0].output[:]


def list_input_twice(model: onnx.ModelProto) -> None:
    model.graph.input.append(model.graph.input[0])


def list_initializer_twice(model: onnx.ModelProto) -> None:
    model.graph.initializer.append(weight(model))


def refer_to_a_function(model: onnx.ModelProto) -> None:
    model.graph.node[5].attribute.add(name="keepdims", ref_attr_name="k", type=2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_type, "unknown element type 999"),
        (cut_value, "value of tensor 'w4' is damaged"),
        (add_huge, "larger than any memory"),
        (add_negative, r"has the shape \[8, -4\]"),
        (drop_inputs, "has 0 inputs"),
        (drop_outputs, "makes nothing"),
        (list_input_twice, "input 'x' is listed 2 times"),
        (list_initializer_twice, "initializer 'one' is listed 2 times"),
        (refer_to_a_function, "refers to one of a function"),
    ],
)
def test_a_damaged_model_is_refused_by_name(tmp_path: Path, change: Change, message: str) -> None:
    model = onnx.load(save(tmp_path, TRAINING_MLP))
    change(model)
    with pytest.raises(InputError, match=message):
        read_model(save_proto(tmp_path, model), {"N": 8})


def test_names_that_are_not_text_are_refused(tmp_path: Path) -> None:
    content = save(tmp_path, TRAINING_MLP).read_bytes().replace(b"MatMul", b"Mat\xff\xfel")
    path = tmp_path / "bad.onnx"
    path.write_bytes(content)
    with pytest.raises(InputError, match="holds a name that is not text"):
        read_model(path, {"N": 8})


def functions(*bodies: str) -> str:
    head = '<ir_version: 8, opset_import: ["" : 18, "my" : 1]>\n'
    graph = "g (float[4] x) => (float[4] y) { y = my.f0(x) }\n"
    return (
        head
        + graph
        + "\n".join(f'<opset_import: ["" : 18, "my" : 1], domain: "my"> {body}' for body in bodies)
    )


def test_functions_that_call_themselves_are_refused(tmp_path: Path) -> None:
    text = functions("f0 (a) => (b) { b = my.f1(a) }", "f1 (a) => (b) { b = my.f0(a) }")
    with pytest.raises(InputError, match="function 'f0' of the model calls itself"):
        read_model(save_proto(tmp_path, onnx.parser.parse_model(text)), {})


def test_functions_that_stand_for_too_many_nodes_are_refused(tmp_path: Path) -> None:
    bodies = [f"f{i} (a) => (c) {{ b = my.f{i + 1}(a) c = my.f{i + 1}(b) }}" for i in range(30)]
    text = functions(*bodies, "f30 (a) => (b) { b = Relu(a) }")
    with pytest.raises(InputError, match="stand for more than 500000 nodes"):
        read_model(save_proto(tmp_path, onnx.parser.parse_model(text)), {})


def test_a_large_vector_is_not_taken_for_a_shape(tmp_path: Path) -> None:
    path = save(tmp_path, "g (float[N] x) => (float[N] y) { a = Mul(x, x) y = Add(a, x) }")
    graph = read_model(path, {"N": 10**12}).graph
    assert sum(tensor.nbytes for tensor in graph.tensors) == 3 * 4 * 10**12


def test_a_loop_of_links_is_no_external_data(tmp_path: Path) -> None:
    model = onnx.load(
        save(tmp_path, "g (float[2] x, float[2] w) => (float[2] y) { y = Add(x, w) }")
    )
    tensor = onnx.TensorProto(name="w", data_type=1, dims=[2])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="loop")
    (tmp_path / "loop").symlink_to("loop")
    model.graph.initializer.append(tensor)
    with pytest.raises(InputError, match="outside the model's folder"):
        read_model(save_proto(tmp_path, model), {})


def test_an_op_that_reads_what_nothing_makes_is_not_run_for_its_shapes(tmp_path: Path) -> None:
    model = onnx.load(save(tmp_path, TRAINING_MLP))
    model.graph.node[0].input[1] = "nowhere"
    with pytest.raises(InputError, match="reads 'nowhere', which nothing makes"):
        build_probe(save_proto(tmp_path, model), {"N": 8})


def test_a_window_larger_than_what_it_moves_over_is_refused(tmp_path: Path) -> None:
    text = """g (float[2, 3, 1, 1] x, float[4, 3, 4, 4] w) => (float[2, 4, N, N] y)
      <int64[2] start = {0, 0}, int64[2] end = {3, 3}, int64[2] axes = {2, 3}> {
        c = Conv (x, w)
        y = Slice (c, start, end, axes)
    }"""
    with pytest.raises(InputError, match=r"'c' would have the shape \[2, 4, -2, -2\]"):
        read_model(save(tmp_path, text), {})


def test_a_constant_of_a_number_that_is_none_is_refused(tmp_path: Path) -> None:
    model = onnx.load(save(tmp_path, "g (float[2] x) => (float[2] y) { y = Exp(x) }"))
    constant = onnx.helper.make_node("Constant", [], ["c"], value_int=1)
    constant.attribute[0].type = onnx.AttributeProto.STRING
    model.graph.node.append(constant)
    with pytest.raises(InputError, match="the value of tensor 'c' is damaged"):
        read_model(save_proto(tmp_path, model), {})
