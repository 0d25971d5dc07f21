"""Where onnxruntime puts what the ops of a model make, as far as the order alone does not say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import onnx

from checkmate.graph import OpId, TensorId
from checkmate.onnxio.dims import bind_inputs
from checkmate.onnxio.inferred import find_sized, infer_dims, is_same_shape
from checkmate.onnxio.load import load_proto
from checkmate.onnxio.model import Model, TensorType, find_weight_types
from checkmate.onnxio.order import wire
from checkmate.onnxio.sizes import count_nbytes
from checkmate.placement import ArenaRules, ArenaSetup

_ACTIVATIONS = frozenset({"Elu", "LeakyRelu", "Relu", "Sigmoid", "Softplus", "Tanh"})
IN_PLACE_OPS: Mapping[str, frozenset[str]] = {
    "cpu": _ACTIVATIONS
    | {"Cast", "Clip", "LogSoftmax", "ScatterElements", "Softmax", "Softsign", "Trilu"},
    "cuda": _ACTIVATIONS,
}
"""Per provider: ops that write over their first input when nothing reads it later and it is as
large as the output. Those of the CPU were measured; those of CUDA are what its kernels declare."""

PARTIAL_OPS = frozenset({"LogSoftmax", "Max", "Mean", "Min", "Softmax", "Sum", "Where"})
"""Ops whose workspace is results of the size of the output."""
_ACCUMULATING_OPS = frozenset({"Max", "Mean", "Min", "Sum"})
"""Of these, those that take one input after another: all but the last into partial results."""

_SETUPS: Mapping[str, ArenaSetup] = {
    "cpu": ArenaSetup("whole", 256),
    # The options of the CUDA provider can ask for nothing better.
    "cuda": ArenaSetup("exact", 128 * 2**20),
}
MAX_COPIED_NBYTES = 127
"""Larger initializers are read on the CPU where the model has them."""


def find_arena_rules(model: Model, provider: Literal["cpu", "cuda"]) -> ArenaRules:
    """Return the arena that a session on ``model`` gets with the options that we recommend."""
    partial = (OpId(i) for i, node in enumerate(model.nodes) if _is_in(node, PARTIAL_OPS))
    return ArenaRules(
        _SETUPS[provider],
        tuple(_find_copied(model, provider)),
        dict(_find_in_place(model, IN_PLACE_OPS[provider])),
        frozenset(partial),
        dict(_find_later(model)),
    )


def count_held_nbytes(path: Path, dims: Mapping[str, int], provider: Literal["cpu", "cuda"]) -> int:
    """Return the bytes that a run of the model in ``path`` needs outside of its arena.

    These are the graph inputs, which the caller holds, and on the CPU the initializers, which a
    session reads where the file has them. Raises `InputError` for a symbolic dimension of an input
    that ``dims`` does not have.
    """
    graph = load_proto(path).graph
    inputs = bind_inputs(graph, dims)
    nbytes = sum(count_nbytes(name, known) for name, known in inputs.items())
    if provider == "cpu":
        read = {name for node in graph.node for name in wire(node).reads}
        read.update(output.name for output in graph.output)
        weights = {name: t for name, t in _find_weights(graph) if name in read - inputs.keys()}
        sizes = (count_nbytes(name, known) for name, known in weights.items())
        nbytes += sum(size for size in sizes if size > MAX_COPIED_NBYTES)
    return nbytes


def _find_weights(graph: onnx.GraphProto) -> Iterator[tuple[str, TensorType]]:
    """Yield initializers and the outputs of Constant that are tensors."""
    yield from find_weight_types(graph).items()
    for node in graph.node:
        for attribute in node.attribute if node.op_type == "Constant" else ():
            if attribute.name == "value":
                yield node.output[0], TensorType(attribute.t.data_type, tuple(attribute.t.dims))


def _find_copied(model: Model, provider: str) -> Iterator[TensorId]:
    """Yield the initializers that a session copies into its arena, and what runs copy of them."""
    proto = model.proto.graph
    given = {item.name for item in proto.input}
    for index, tensor in enumerate(model.graph.tensors):
        is_weight = tensor.producer is None and tensor.name not in given
        is_small = tensor.nbytes <= MAX_COPIED_NBYTES
        if is_weight and (provider == "cuda" or is_small or tensor.name not in model.types):
            yield TensorId(index)


def _find_later(model: Model) -> Iterator[tuple[OpId, int]]:
    """Yield ops that make more than one partial result, and how many more."""
    for index, node in enumerate(model.nodes):
        # The first takes two inputs, each later one one more, the output the last.
        n_later = len(node.input) - 3
        if n_later > 0 and _is_in(node, _ACCUMULATING_OPS):
            yield OpId(index), n_later


def _find_in_place(model: Model, op_types: frozenset[str]) -> Iterator[tuple[TensorId, TensorId]]:
    """Yield outputs and the inputs whose storage they may take over; graph outputs never do.

    onnxruntime has to know, before it runs, that both have one shape.
    """
    ids = {tensor.name: TensorId(i) for i, tensor in enumerate(model.graph.tensors)}
    given = [tensor.name for tensor in model.graph.tensors if tensor.producer is None]
    sized = find_sized(given, [wire(node) for node in model.nodes], infer_dims(model.proto))
    for node in model.nodes:
        if not _is_in(node, op_types) or ids[node.output[0]] in model.graph.outputs:
            continue
        read, made = node.input[0], node.output[0]
        types = model.types[read], model.types[made]
        is_equal = count_nbytes(read, types[0]) == count_nbytes(made, types[1])
        if is_equal and types[0].shape == types[1].shape and is_same_shape(sized, read, made):
            yield ids[made], ids[read]


def _is_in(node: onnx.NodeProto, op_types: frozenset[str]) -> bool:
    return node.domain in ("", "ai.onnx") and node.op_type in op_types
