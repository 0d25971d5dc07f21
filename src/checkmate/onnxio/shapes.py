"""The type of every tensor of a model, under bound dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from checkmate.errors import InputError
from checkmate.onnxio.inference import Scope
from checkmate.onnxio.model import TensorType
from checkmate.onnxio.order import Wiring
from checkmate.onnxio.values import Opsets


def infer_types(
    proto: onnx.ModelProto,
    wirings: Sequence[Wiring],
    inputs: Mapping[str, TensorType],
    measured: Mapping[str, TensorType],
) -> Scope:
    """Return the types, the values of small tensors, and the bodies of control flow.

    ``wirings`` are in topological order, ``inputs`` are the bound types of the graph inputs. What
    the file says of other tensors is not believed: it was often written for other sizes.
    ``measured`` are taken where no rule knows. Raises `InputError` that names the tensor, its node
    and its unknown dimension.
    """
    if proto.graph.sparse_initializer:
        name = proto.graph.sparse_initializer[0].values.name
        raise InputError(f"sparse initializer {name!r} is not supported")
    scope = Scope(Opsets(tuple(proto.opset_import)), measured)
    scope.add_types(inputs)
    scope.add_graph(proto.graph)
    for wiring in wirings:
        scope.learn(wiring)
    return scope
