"""A graph that onnxruntime has optimized, in the place of the one that it was made from.

onnxruntime saves nodes in the order of its default traversal, which postpones whatever nothing
waits for, drops metadata, imports every operator set that it knows, and may copy weights into what
it folds. What a plan needs is put back: order, phases, inputs and weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import onnx
from onnx import helper

from checkmate.errors import InputError
from checkmate.onnxio.cutting import is_cut
from checkmate.onnxio.known_sizes import fix_sizes
from checkmate.onnxio.model import Model, TensorType
from checkmate.onnxio.order import Wiring, sort_nodes, wire
from checkmate.onnxio.read import build_model
from checkmate.onnxio.renaming import rename_reads
from checkmate.onnxio.sizes import count_nbytes

_MAX_SHOWN_ELEMENTS = 64
"""Of initializers that optimizers may see: shapes, axes, scalars. Larger ones are weights."""
_COPY_OPS = frozenset({"MemcpyFromHost", "MemcpyToHost"})
"""What a session puts between devices by itself, each time it is made."""


def prepare_model(model: Model) -> onnx.ModelProto:
    """Return what onnxruntime is to optimize.

    Dimensions are bound, the type of every tensor is stated, every node has the name of its op.
    Sizes that are known are constants. Weights stand among the inputs: they are not read, not
    folded, not copied.
    """
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    graph = proto.graph
    del graph.node[:], graph.value_info[:]
    graph.node.extend(node for node in model.proto.graph.node if node.op_type == "Constant")
    for op, node in zip(model.graph.ops, model.nodes, strict=True):
        graph.node.append(node)
        graph.node[-1].name = op.name
    outputs = {item.name for item in graph.output}
    made = (name for node in model.nodes for name in node.output if name)
    graph.value_info.extend(_state_types(model, (name for name in made if name not in outputs)))
    _bind(model, graph)
    weights = _find_weights(model)
    known = {item.name for item in graph.input}
    graph.input.extend(_state_types(model, (name for name in weights if name not in known)))
    shown = [tensor for tensor in graph.initializer if tensor.name not in weights]
    del graph.initializer[:]
    graph.initializer.extend(shown)
    # Before version 4, every initializer is an input too, which would hide its value.
    proto.ir_version = max(proto.ir_version, 4)
    fix_sizes(proto)
    return proto


def adopt_model(model: Model, optimized: onnx.ModelProto, loss: str | None) -> Model:
    """Return ``optimized``, made from what `prepare_model` returned, in the place of ``model``.

    Inputs, outputs, weights and metadata are those of ``model``. Nodes are in its order; one that
    is new runs just before its first reader. Raises `InputError` when a shape is unknown.
    """
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    graph = proto.graph
    makers = {name: i for i, node in enumerate(model.nodes) for name in node.output if name}
    nodes = restore_order(_drop_copies(optimized.graph), makers)
    del graph.node[:], graph.value_info[:]
    graph.node.extend(_restore_metadata(model, node, makers) for node in nodes)
    _bind(model, graph)
    _restore_initializers(model, graph, optimized.graph)
    made = [name for node in graph.node for name in node.output if name]
    graph.value_info.extend(_state_types(model, (name for name in made if name in makers)))
    _restore_opsets(proto, optimized)
    proto.ir_version = max(proto.ir_version, optimized.ir_version)
    adopted = build_model(model.path, proto, {}, loss)
    return replace(adopted, dims=model.dims, namesake=model.namesake, is_optimized=True)


def restore_order(
    nodes: Sequence[onnx.NodeProto], makers: Mapping[str, int]
) -> tuple[onnx.NodeProto, ...]:
    """Return ``nodes`` in the order of the graph that they were made from.

    ``makers`` gives the position there of what made a tensor. A node comes no later than there,
    and no later than its first reader needs it.
    """
    wirings = sort_nodes([wire(node) for node in nodes])
    ranks = _rank(wirings, makers)
    order = sorted(range(len(wirings)), key=lambda i: (ranks[i], i))
    return tuple(wirings[i].node for i in order)


def _rank(wirings: Sequence[Wiring], makers: Mapping[str, int]) -> list[int]:
    """Return where each node belongs; never after its readers."""
    end = len(makers)
    due: dict[str, int] = {}
    ranks = [end] * len(wirings)
    for i in reversed(range(len(wirings))):
        made = wirings[i].makes
        places = (min(makers.get(name, end), due.get(name, end)) for name in made)
        ranks[i] = min(places, default=end)
        for name in wirings[i].reads:
            due[name] = min(due.get(name, end), ranks[i])
    return ranks


def _find_weights(model: Model) -> frozenset[str]:
    """Return the initializers that optimizers must not see: large ones, and replaceable ones."""
    graph = model.proto.graph
    given = {item.name for item in graph.input}
    return frozenset(
        tensor.name
        for tensor in graph.initializer
        if tensor.name in given
        or tensor.data_location == onnx.TensorProto.EXTERNAL
        or _count_elements(tensor) > _MAX_SHOWN_ELEMENTS
    )


def _count_elements(tensor: onnx.TensorProto) -> int:
    n_elements = 1
    for dim in tensor.dims:
        n_elements *= dim
    return n_elements


def _state_types(model: Model, names: Iterator[str]) -> Iterator[onnx.ValueInfoProto]:
    for name in names:
        known = model.types[name]
        yield helper.make_tensor_value_info(name, known.elem_type, known.shape)


def _bind(model: Model, graph: onnx.GraphProto) -> None:
    """Give inputs and outputs of ``graph`` the shapes that they have under the bound dimensions."""
    for items in (graph.input, graph.output):
        stated = list(_state_types(model, (item.name for item in items)))
        del items[:]
        items.extend(stated)


def _drop_copies(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Return the nodes of ``graph`` without copies between devices."""
    sources: dict[str, str] = {}
    kept: list[onnx.NodeProto] = []
    outputs = {item.name for item in graph.output}
    for node in graph.node:
        rename_reads(node, sources)
        if node.op_type in _COPY_OPS and node.output[0] not in outputs:
            sources[node.output[0]] = node.input[0]
        else:
            kept.append(node)
    return kept


def _restore_metadata(
    model: Model, node: onnx.NodeProto, makers: Mapping[str, int]
) -> onnx.NodeProto:
    """Return ``node`` with the metadata of the node that made the same tensor before."""
    origin = next((makers[name] for name in node.output if name in makers), None)
    if origin is not None and not node.metadata_props:
        node.metadata_props.extend(model.nodes[origin].metadata_props)
    return node


def _restore_initializers(model: Model, graph: onnx.GraphProto, optimized: onnx.GraphProto) -> None:
    """Give ``graph`` the weights of ``model`` that are still read, and what folding made."""
    weights = _find_weights(model)
    read = {name for node in graph.node for name in wire(node).reads}
    needed = read.union(item.name for item in (*graph.output, *graph.input))
    kept = [t for t in graph.initializer if t.name in weights and t.name in needed]
    made = [t for t in optimized.initializer if t.name in needed and t.name not in weights]
    large = next((tensor.name for tensor in made if is_cut(tensor)), None)
    if large is not None:
        raise InputError(f"onnxruntime made a large constant of the model, {large!r}")
    kept += made
    del graph.initializer[:]
    graph.initializer.extend(kept)


def _restore_opsets(proto: onnx.ModelProto, optimized: onnx.ModelProto) -> None:
    """Import beside the operator sets of before only those that some node needs."""
    known = {entry.domain for entry in proto.opset_import}
    used = {node.domain for node in proto.graph.node}
    proto.opset_import.extend(
        entry
        for entry in optimized.opset_import
        if entry.domain in used and entry.domain not in known
    )


def count_folded_nbytes(model: Model, optimized: onnx.ModelProto) -> int:
    """Return the size of the largest constant of ``optimized`` that ``model`` did not have."""
    known = {tensor.name for tensor in model.proto.graph.initializer}
    known.update(
        name
        for node in model.proto.graph.node
        for name in node.output
        if node.op_type == "Constant"
    )
    new = (tensor for tensor in optimized.graph.initializer if tensor.name not in known)
    sizes = (
        count_nbytes(tensor.name, TensorType(tensor.data_type, tuple(tensor.dims)))
        for tensor in new
    )
    return max(sizes, default=0)
