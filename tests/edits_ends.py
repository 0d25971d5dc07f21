"""Changes to inputs, outputs, weights, names and types of ONNX models that stay valid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from checkmate.onnxio.renaming import rename_reads
from edits import (
    FLOATS,
    Draw,
    Edit,
    choose,
    draw_value,
    find_types,
    list_made,
    list_names,
    name_new,
)

ODD_NAMES = (
    "a b", "x/y:0", "naïve", "__recompute", "-", "[b]", "{0}", "%s", "../up", "a" * 300, "0",
    "checkmate_fence_zeros_1", "checkmate_fence_1_token", "checkmate_fence_2_size",
)  # fmt: skip
OUR_ENDINGS = (
    "__recompute1", "__recompute2", "__early1", "__released", "__recompute1_", "__early2",
)  # fmt: skip
"""What a rewritten model adds to names."""
ODD_DIMS = ("N", "M", "batch size", "N+1", "a=b", "ü", "-", "unk__1")


def add_output(proto: onnx.ModelProto, draw: Draw) -> None:
    """Make one more tensor an output, of what nodes make, the caller gives or the file holds."""
    graph, types = proto.graph, find_types(proto)
    names = [
        *list_made(graph),
        *(i.name for i in graph.input),
        *(t.name for t in graph.initializer),
    ]
    names = [name for name in names if name in types]
    outputs = {item.name for item in graph.output}
    fresh = [name for name in names if name not in outputs]
    if not fresh:
        return
    name = choose(draw, fresh)
    item = helper.make_tensor_value_info(name, *types[name])
    graph.output.insert(draw(st.integers(0, len(graph.output))), item)


def drop_output(proto: onnx.ModelProto, draw: Draw) -> None:
    """Have one output less, which leaves what makes it without a reader."""
    if len(proto.graph.output) > 1:
        del proto.graph.output[draw(st.integers(0, len(proto.graph.output) - 1))]


def list_output_twice(proto: onnx.ModelProto, draw: Draw) -> None:
    """List an output twice, which onnxruntime may refuse."""
    proto.graph.output.append(choose(draw, proto.graph.output))


def pass_input_on(proto: onnx.ModelProto, draw: Draw) -> None:
    """Make an input an output."""
    names = {item.name for item in proto.graph.output}
    items = [item for item in proto.graph.input if item.name not in names]
    if items:
        proto.graph.output.append(choose(draw, items))


def move_weight(proto: onnx.ModelProto, draw: Draw) -> None:
    """Hold an initializer as a Constant, an input, both, or sparsely."""
    graph = proto.graph
    if not graph.initializer:
        return
    tensor = onnx.TensorProto()
    tensor.CopyFrom(choose(draw, graph.initializer))
    item = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
    is_input = any(given.name == tensor.name for given in graph.input)
    kind = draw(st.integers(0, 3))
    if kind == 0 and not is_input:
        _drop_weight(graph, tensor.name)
        graph.node.insert(0, helper.make_node("Constant", [], [tensor.name], value=tensor))
    elif kind == 1 and not is_input:
        graph.input.append(item)
    elif kind == 2:
        _drop_weight(graph, tensor.name)
        graph.input.extend([] if is_input else [item])
    elif kind == 3 and not is_input and tensor.data_type == 1 and tensor.dims:
        _drop_weight(graph, tensor.name)
        graph.sparse_initializer.append(_make_sparse(tensor))


def _drop_weight(graph: onnx.GraphProto, name: str) -> None:
    kept = [tensor for tensor in graph.initializer if tensor.name != name]
    del graph.initializer[:]
    graph.initializer.extend(kept)


def _make_sparse(tensor: onnx.TensorProto) -> onnx.SparseTensorProto:
    value = numpy_helper.to_array(tensor)
    places = np.flatnonzero(value)
    values = numpy_helper.from_array(value.reshape(-1)[places], tensor.name)
    indices = numpy_helper.from_array(places.astype(np.int64), f"{tensor.name}_places")
    return helper.make_sparse_tensor(values, indices, list(tensor.dims))


def keep_input(proto: onnx.ModelProto, draw: Draw) -> None:
    """Hold an input of fixed size as an initializer or a Constant."""
    types = find_types(proto)
    fixed = [i.name for i in proto.graph.input if all(isinstance(d, int) for d in types[i.name][1])]
    if not fixed or len(proto.graph.input) < 2:
        return
    name = choose(draw, fixed)
    if np.prod(types[name][1]) > 5000:
        return
    value = numpy_helper.from_array(draw_value(draw, *types[name]), name)
    kept = [item for item in proto.graph.input if item.name != name]
    del proto.graph.input[:]
    proto.graph.input.extend(kept)
    if any(tensor.name == name for tensor in proto.graph.initializer):
        return
    if draw(st.booleans()):
        proto.graph.initializer.append(value)
    else:
        proto.graph.node.insert(0, helper.make_node("Constant", [], [name], value=value))


def rename_tensor(proto: onnx.ModelProto, draw: Draw) -> None:
    """Give a tensor an odd name, or one that a rewritten model might want for another."""
    graph = proto.graph
    ends = [item.name for item in (*graph.input, *graph.output)]
    names = sorted({*list_made(graph), *ends, *(t.name for t in graph.initializer)})
    old, other = choose(draw, names), choose(draw, names)
    new = choose(draw, (*ODD_NAMES, *(f"{other}{ending}" for ending in OUR_ENDINGS)))
    if new not in list_names(graph):
        rename_everywhere(proto, {old: new})


def rename_everywhere(proto: onnx.ModelProto, names: Mapping[str, str]) -> None:
    graph = proto.graph
    for node in graph.node:
        rename_reads(node, names)
        for i, name in enumerate(node.output):
            node.output[i] = names.get(name, name)
    for item in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        item.name = names.get(item.name, item.name)
    for sparse in graph.sparse_initializer:
        sparse.values.name = names.get(sparse.values.name, sparse.values.name)


def rename_node(proto: onnx.ModelProto, draw: Draw) -> None:
    """Give a node an odd name, that of a tensor, or that of another node."""
    node = choose(draw, proto.graph.node)
    other = choose(draw, proto.graph.node)
    odd = (*ODD_NAMES, *(f"{other.name}{ending}" for ending in OUR_ENDINGS))
    node.name = choose(draw, (*odd, other.name, f"{other.op_type}_0", other.output[0], ""))


def name_dim(proto: onnx.ModelProto, draw: Draw) -> None:
    """Make a dimension of an input symbolic."""
    places = [
        dim
        for item in proto.graph.input
        for dim in item.type.tensor_type.shape.dim
        if dim.HasField("dim_value")
    ]
    if places:
        size = choose(draw, places).dim_value
        name = choose(draw, ODD_DIMS)
        for item in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
            for dim in item.type.tensor_type.shape.dim:
                if dim.dim_value == size and dim.HasField("dim_value"):
                    dim.dim_param = name


def resize_dim(proto: onnx.ModelProto, draw: Draw) -> None:
    """Change a size wherever it stands, in the values of weights by drawing them anew."""
    graph = proto.graph
    sizes = sorted({size for dims in _list_shapes(graph) for size in dims if size > 1})
    if not sizes:
        return
    old, new = choose(draw, sizes), choose(draw, (1, 2, 3, 6, 12, 40, 0))
    for item in (*graph.input, *graph.output, *graph.value_info):
        for dim in item.type.tensor_type.shape.dim:
            if dim.HasField("dim_value") and dim.dim_value == old:
                dim.dim_value = new
    for tensor in graph.initializer:
        if old in tensor.dims and tensor.data_type in FLOATS:
            shape = [new if size == old else size for size in tensor.dims]
            value = draw_value(draw, tensor.data_type, shape)
            tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))


def _list_shapes(graph: onnx.GraphProto) -> Iterator[tuple[int, ...]]:
    for item in graph.input:
        yield tuple(dim.dim_value for dim in item.type.tensor_type.shape.dim)
    for tensor in graph.initializer:
        yield tuple(tensor.dims)


def change_floats(proto: onnx.ModelProto, draw: Draw) -> None:
    """Make all float tensors float16, bfloat16 or double."""
    graph, elem_type = proto.graph, choose(draw, (11, 11, 11, 10, 16))
    for item in (*graph.input, *graph.output, *graph.value_info):
        if item.type.tensor_type.elem_type == 1:
            item.type.tensor_type.elem_type = elem_type
    constants = (a.t for node in graph.node for a in node.attribute if a.HasField("t"))
    for tensor in (*graph.initializer, *constants):
        if tensor.data_type == 1 and elem_type != 16:
            value = numpy_helper.to_array(tensor).astype(helper.tensor_dtype_to_np_dtype(elem_type))
            tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))


def change_value_info(proto: onnx.ModelProto, draw: Draw) -> None:
    """Strip the types of inner tensors, state all of them, or some that are out of date."""
    kind = draw(st.integers(0, 2))
    if kind == 0:
        del proto.graph.value_info[:]
        return
    types = find_types(proto)
    stated = {item.name for item in (*proto.graph.value_info, *proto.graph.output)}
    for name in list_made(proto.graph):
        if name in types and name not in stated:
            elem_type, shape = types[name]
            if kind == 2:
                shape = tuple(f"unk__{i}" for i in range(len(shape)))
            item = helper.make_tensor_value_info(name, elem_type, shape)
            proto.graph.value_info.append(item)


def change_version(proto: onnx.ModelProto, draw: Draw) -> None:
    """Say that the model is of another time."""
    if draw(st.booleans()):
        proto.ir_version = choose(draw, (3, 4, 7, 8, 9, 10))
    elif proto.opset_import:
        proto.opset_import[0].version = choose(draw, (15, 16, 17, 18, 19, 20, 21, 22))
    if draw(st.booleans()):
        proto.opset_import.add(domain=choose(draw, ("com.microsoft", "unused")), version=1)


def add_text(proto: onnx.ModelProto, draw: Draw) -> None:
    """Add metadata and documentation, some of which says of which phase a node is."""
    node = choose(draw, proto.graph.node)
    if draw(st.booleans()):
        phase = choose(draw, ("forward", "backward", "optimizer", "stats", ""))
        node.metadata_props.add(key="checkmate.phase", value=phase)
    else:
        node.doc_string = choose(draw, ("Backward pass", "naïve\n\x1b[31m"))
    if draw(st.booleans()):
        proto.graph.name = choose(draw, ("", *ODD_NAMES))
        proto.metadata_props.add(key=name_new(proto, "key"), value="x")


END_EDITS: tuple[Edit, ...] = (
    add_output, drop_output, list_output_twice, pass_input_on, move_weight, move_weight, keep_input,
    rename_tensor, rename_tensor, rename_node, rename_node, name_dim, resize_dim, change_floats,
    change_value_info, change_version, add_text,
)  # fmt: skip
