"""What every model must be before the rest believes it; files come from strangers.

Parsed protocol buffers may hold text that is not Unicode, element types that do not exist, nodes
without the inputs that their operator needs, sizes beyond any memory. Each is refused by name.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache

import onnx

from checkmate.errors import InputError
from checkmate.onnxio.order import describe, list_bodies, name_weights

MAX_ELEMENTS = 2**50
"""No machine holds a larger tensor; sums of such sizes stay exact everywhere."""

_ELEM_TYPES = frozenset(onnx.TensorProto.DataType.values())


def check_structure(proto: onnx.ModelProto) -> None:
    """Raise `InputError` that names what cannot be in a model.

    Of functions that is seen when they are inlined, names and tensors apart.
    """
    _check_text("opset import", (entry.domain for entry in proto.opset_import))
    opsets = {entry.domain: entry.version for entry in proto.opset_import}
    for function in proto.functions:
        texts = (function.name, function.domain, *function.input, *function.output)
        _check_text("function", texts)
        for node in function.node:
            _check_node(node)
            _check_tensors(node)
    for graph in list_training_graphs(proto):
        _check_graph(graph)
    for graph in walk_graphs(proto.graph):
        _check_graph(graph)
        for node in graph.node:
            _check_node(node)
            _check_arity(node, opsets.get(node.domain, 0))
            _check_references(node)
            _check_tensors(node)


def walk_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield ``graph`` and every graph within its nodes."""
    pending = [graph]
    while pending:
        current = pending.pop()
        yield current
        for node in current.node:
            pending.extend(list_bodies(node))


def list_training_graphs(proto: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs of training information, which nothing runs."""
    for info in proto.training_info:
        yield from (info.initialization, info.algorithm)


def list_tensors(node: onnx.NodeProto) -> Iterator[onnx.TensorProto]:
    """Yield the tensors that attributes of ``node`` hold, sparse ones in parts."""
    for attribute in node.attribute:
        yield from (attribute.t,) if attribute.HasField("t") else ()
        yield from attribute.tensors
        one = (attribute.sparse_tensor,) if attribute.HasField("sparse_tensor") else ()
        for sparse in (*one, *attribute.sparse_tensors):
            yield from (sparse.values, sparse.indices)


def check_shape(name: str, shape: Iterable[int]) -> None:
    """Raise `InputError` when a tensor of this shape cannot be."""
    dims = tuple(shape)
    if min(dims, default=0) < 0:
        raise InputError(f"tensor {name!r} has the shape {list(dims)}")
    if math.prod(dims) > MAX_ELEMENTS or max(dims, default=0) > MAX_ELEMENTS:
        raise InputError(f"tensor {name!r} of shape {list(dims)} is larger than any memory")


def _check_graph(graph: onnx.GraphProto) -> None:
    items = (*graph.input, *graph.output, *graph.value_info)
    params = [d.dim_param for i in items for d in i.type.tensor_type.shape.dim if d.dim_param]
    texts = (graph.name, *(item.name for item in items), *params)
    _check_text("graph", (*texts, *name_weights(graph)))
    _check_once("input", (item.name for item in graph.input))
    _check_once("initializer", name_weights(graph))
    for item in graph.input:
        if item.type.WhichOneof("value") == "tensor_type":
            _check_elem_type(item.name, item.type.tensor_type.elem_type)
    for tensor in graph.initializer:
        _check_tensor(tensor, tensor.name)
    for sparse in graph.sparse_initializer:
        _check_tensor(sparse.values, sparse.values.name)
        check_shape(sparse.values.name, sparse.dims)


def _check_once(kind: str, names: Iterable[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise InputError(f"{kind} {name!r} is listed {count} times")


def _check_node(node: onnx.NodeProto) -> None:
    texts = (node.op_type, node.domain, node.name, *node.input, *node.output)
    _check_text("node", (*texts, *(attribute.name for attribute in node.attribute)))
    if not any(node.output):
        raise InputError(f"op {describe(node)} makes nothing")


def _check_references(node: onnx.NodeProto) -> None:
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            raise InputError(
                f"attribute {attribute.name!r} of op {describe(node)} refers to one of a function"
            )


def _check_tensors(node: onnx.NodeProto) -> None:
    for tensor in list_tensors(node):
        _check_tensor(tensor, f"{tensor.name or 'of an attribute'} of {describe(node)}")


def _check_arity(node: onnx.NodeProto, version: int) -> None:
    """Refuse fewer inputs or other outputs than the operator has, where onnx knows it."""
    arity = _find_arity(node.op_type, "" if node.domain == "ai.onnx" else node.domain, version)
    if arity is None:
        return
    min_inputs, max_outputs = arity
    if len(node.input) < min_inputs or len(node.output) > max_outputs:
        raise InputError(
            f"op {describe(node)} has {len(node.input)} inputs and {len(node.output)} outputs,"
            f" but takes at least {min_inputs} and makes at most {max_outputs}"
        )


@lru_cache(maxsize=4096)
def _find_arity(op_type: str, domain: str, version: int) -> tuple[int, int] | None:
    if version < 1 or version >= 2**31 or not onnx.defs.has(op_type, version, domain):
        return None
    schema = onnx.defs.get_schema(op_type, version, domain)
    return schema.min_input, schema.max_output


def _check_tensor(tensor: onnx.TensorProto, name: str) -> None:
    _check_text(f"tensor {name!r}", (entry.value for entry in tensor.external_data))
    _check_elem_type(name, tensor.data_type)
    check_shape(name, tensor.dims)
    if tensor.HasField("segment"):
        raise InputError(f"tensor {name!r} is one segment of a tensor, which is not supported")


def _check_elem_type(name: str, elem_type: int) -> None:
    if elem_type not in _ELEM_TYPES or elem_type == onnx.TensorProto.UNDEFINED:
        raise InputError(f"tensor {name!r} has unknown element type {elem_type}")


def _check_text(where: str, texts: Iterable[object]) -> None:
    """Refuse what the parser left as bytes, because it is not Unicode, and what has a zero."""
    for text in texts:
        if not isinstance(text, str) or "\0" in text:
            raise InputError(f"{where} holds a name that is not text: {text!r:.60}")
