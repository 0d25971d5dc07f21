"""The type of every tensor of a model, under bound dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from checkmate.errors import InputError
from checkmate.onnxio.inference import Scope
from checkmate.onnxio.model import TensorType
from checkmate.onnxio.order import Wiring
from checkmate.onnxio.shape_rules.call import as_known
from checkmate.onnxio.values import Opsets


def infer_types(
    proto: onnx.ModelProto,
    wirings: Sequence[Wiring],
    inputs: Mapping[str, TensorType],
    measured: Mapping[str, TensorType],
) -> Scope:
    """Return the types, the values of small tensors, and the bodies of control flow.

    ``wirings`` are in topological order, ``inputs`` are the bound types of the graph inputs.
    ``measured`` are taken where no rule knows, and after them what the file says, if it was
    written for inputs of fixed sizes; else that was often written for other sizes. Raises
    `InputError` that names the tensor, its node and its unknown dimension.
    """
    scope = _open_scope(proto, inputs, {**_find_stated_types(proto.graph), **measured})
    for wiring in wirings:
        scope.learn(wiring)
    return scope


def find_unknown(
    proto: onnx.ModelProto, wirings: Sequence[Wiring], inputs: Mapping[str, TensorType]
) -> tuple[str, ...]:
    """Return the tensors of which neither rules nor the file tell the type.

    Those behind them are among them.
    """
    scope = _open_scope(proto, inputs, _find_stated_types(proto.graph))
    try:
        for wiring in wirings:
            scope.learn(wiring)
    except InputError:
        return tuple(n for wiring in wirings for n in wiring.makes if n not in scope.types)
    return ()


def _open_scope(
    proto: onnx.ModelProto, inputs: Mapping[str, TensorType], believed: Mapping[str, TensorType]
) -> Scope:
    scope = Scope(Opsets(tuple(proto.opset_import)), believed)
    scope.add_types(inputs)
    scope.add_graph(proto.graph)
    return scope


def _find_stated_types(graph: onnx.GraphProto) -> dict[str, TensorType]:
    """Return what a file whose inputs have fixed sizes says of its tensors."""
    dims = (dim for item in graph.input for dim in item.type.tensor_type.shape.dim)
    if not all(dim.HasField("dim_value") for dim in dims):
        return {}
    stated = {item.name: as_known(item.type) for item in (*graph.value_info, *graph.output)}
    return {name: known for name, known in stated.items() if known is not None}
