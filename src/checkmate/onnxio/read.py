"""A model file as a graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import onnx

from checkmate.errors import GraphError
from checkmate.graph import Graph, Op, OpId, Tensor, TensorId
from checkmate.onnxio.dims import bind_inputs
from checkmate.onnxio.effects import find_pins
from checkmate.onnxio.functions import inline_functions
from checkmate.onnxio.inference import Scope
from checkmate.onnxio.load import load_proto
from checkmate.onnxio.model import Model, TensorType
from checkmate.onnxio.names import find_namesake, part_bodies
from checkmate.onnxio.order import Wiring, describe, name_weights, sort_nodes, wire
from checkmate.onnxio.phases import find_backward, find_loss
from checkmate.onnxio.sequences import lower_sequences
from checkmate.onnxio.shapes import infer_types
from checkmate.onnxio.sizes import count_nbytes
from checkmate.onnxio.views import find_source


def read_model(
    path: Path,
    dims: Mapping[str, int],
    loss: str | None = None,
    measured: Mapping[str, TensorType] = MappingProxyType({}),
) -> Model:
    """Return the model in ``path`` with its graph, symbolic dimensions bound to ``dims``.

    Model-local functions are inlined. ``measured`` are types of tensors, for those that no rule
    tells. Raises `InputError` (exit code 3) for whatever is not
    understood, `UsageError` for a dimension that the model does not have.
    """
    proto = load_proto(path)
    model = build_model(path, _lower(proto), dims, loss, measured)
    return replace(model, namesake=find_namesake(proto))


def read_proto(path: Path) -> onnx.ModelProto:
    """Return the model in ``path`` as its graph is made from it: without functions.

    Tensors within bodies have names of their own.
    """
    return _lower(load_proto(path))


def _lower(proto: onnx.ModelProto) -> onnx.ModelProto:
    return part_bodies(lower_sequences(inline_functions(proto)))


def build_model(
    path: Path,
    proto: onnx.ModelProto,
    dims: Mapping[str, int],
    loss: str | None = None,
    measured: Mapping[str, TensorType] = MappingProxyType({}),
) -> Model:
    """Return the model that ``proto``, without functions, stands for; ``path`` is its place.

    Raises what `read_model` does.
    """
    inputs = bind_inputs(proto.graph, dims)
    in_file_order = [wire(node) for node in proto.graph.node]
    check_reads(proto.graph, in_file_order)
    wirings = sort_nodes(in_file_order)
    scope = infer_types(proto, wirings, inputs, measured)
    ops = tuple(wiring for wiring in wirings if wiring.node.op_type != "Constant")
    return Model(
        path,
        proto,
        tuple(wiring.node for wiring in ops),
        scope.types,
        scope.values,
        scope.bodies,
        tuple(scope.complaints),
        dict(dims),
        _make_graph(proto.graph, ops, scope, loss, path.stem),
    )


def _make_graph(
    graph: onnx.GraphProto, ops: tuple[Wiring, ...], scope: Scope, loss: str | None, stem: str
) -> Graph:
    outputs = tuple(dict.fromkeys(output.name for output in graph.output))
    backward = find_backward(ops, find_loss(outputs, scope.types, loss))
    pins = find_pins(ops, scope.values)
    tensors = _make_tensors(graph, ops, scope.types)
    ids = {tensor.name: TensorId(i) for i, tensor in enumerate(tensors)}
    return Graph(
        graph.name or stem,
        tuple(
            Op(
                name,
                tuple(ids[read] for read in wiring.reads),
                tuple(ids[made] for made in wiring.makes),
                recomputable=pin is None,
                backward=is_backward,
            )
            for name, wiring, pin, is_backward in zip(
                name_ops(ops), ops, pins, backward, strict=True
            )
        ),
        tensors,
        tuple(ids[output] for output in outputs),
    )


def check_reads(graph: onnx.GraphProto, wirings: Sequence[Wiring]) -> None:
    """Refuse a graph that reads or returns what nothing makes, or makes an input."""
    given = {*(item.name for item in graph.input), *name_weights(graph)}
    made = {name for wiring in wirings for name in wiring.makes}
    for wiring in wirings:
        for name in wiring.reads:
            if name not in given and name not in made:
                raise GraphError(f"op {describe(wiring.node)} reads {name!r}, which nothing makes")
        for name in wiring.makes:
            if name in given:
                raise GraphError(f"op {describe(wiring.node)} makes {name!r}, which is an input")
    for output in graph.output:
        if output.name not in given and output.name not in made:
            raise GraphError(f"graph output {output.name!r} is made by nothing")


def name_ops(ops: Sequence[Wiring]) -> Iterator[str]:
    """Yield a unique name per op: its own, or one made from its operator and position."""
    counts = Counter(wiring.node.name for wiring in ops)
    taken = {name for name, count in counts.items() if count == 1}
    for position, wiring in enumerate(ops):
        name = wiring.node.name
        if not name or counts[name] > 1:
            name = f"{name or wiring.node.op_type}_{position}"
            while name in taken:
                name += "_"
            taken.add(name)
        yield name


def _make_tensors(
    graph: onnx.GraphProto, ops: Sequence[Wiring], types: Mapping[str, TensorType]
) -> tuple[Tensor, ...]:
    """Return resident tensors in file order, then the outputs of each op.

    Initializers that nothing reads are left out: onnxruntime does not load them. Of those that are
    graph outputs, the caller gets copies that each run makes when it begins.
    """
    outputs = {output.name for output in graph.output}
    used = outputs.union(name for wiring in ops for name in wiring.reads)
    constants = [node.output[0] for node in graph.node if node.op_type == "Constant"]
    weights = [*name_weights(graph), *constants]
    resident = [item.name for item in graph.input] + [name for name in weights if name in used]
    tensors = [
        Tensor(name, count_nbytes(name, types[name]), None) for name in dict.fromkeys(resident)
    ]
    tensors += [
        Tensor(_name_copy(name, types), count_nbytes(name, types[name]), None)
        for name in dict.fromkeys(weights)
        if name in outputs
    ]
    ids = {tensor.name: TensorId(i) for i, tensor in enumerate(tensors)}
    for position, wiring in enumerate(ops):
        source = find_source(wiring.node, outputs)
        for name in wiring.makes:
            ids[name] = TensorId(len(tensors))
            nbytes = count_nbytes(name, types[name]) if source is None else 0
            source_id = None if source is None else ids[source]
            tensors.append(Tensor(name, nbytes, OpId(position), source_id))
    return tuple(tensors)


def _name_copy(weight: str, taken: Container[str]) -> str:
    """Return a name for what a run hands to the caller of ``weight``; the file does not have it."""
    name = f"{weight}__returned"
    while name in taken:
        name += "_"
    return name
