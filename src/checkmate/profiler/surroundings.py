"""What an op sees of its model: types, known values, weights, versions of operator sets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx

from checkmate.onnxio.model import Body, Model, TensorType
from checkmate.onnxio.order import name_weights
from checkmate.runtime.dtypes import NUMPY_DTYPES


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The part of a model that decides what its ops cost."""

    types: Mapping[str, TensorType]
    values: Mapping[str, np.ndarray]
    """Tensors whose value is known and small."""
    weights: frozenset[str]
    """Initializers and outputs of Constant: fixed before the run starts."""
    opsets: Mapping[str, int]
    """Version per domain."""
    ir_version: int
    bodies: Mapping[str, tuple[Body, ...]] = field(default_factory=dict)
    """Per control-flow op, by the first tensor that it makes."""
    outputs: frozenset[str] = frozenset()
    """Graph outputs, which have a storage of their own."""

    def enter(self, body: Body) -> Surroundings:
        """Return what the ops within a body see."""
        return Surroundings(body.types, {}, frozenset(), self.opsets, self.ir_version, body.bodies)

    def find_bodies(self, node: onnx.NodeProto) -> tuple[Body, ...]:
        """Return the graphs within ``node``; none: it is no control flow."""
        return next((self.bodies[name] for name in node.output if name in self.bodies), ())


def survey(model: Model) -> Surroundings:
    """Return what the ops of ``model`` see."""
    graph = model.proto.graph
    # An initializer that is also an input can be replaced by the caller, so it is not fixed.
    given = {item.name for item in graph.input}
    weights = {name for name in name_weights(graph) if name not in given}
    constants = {node.output[0] for node in graph.node if node.op_type == "Constant"}
    opsets = {_domain(opset.domain): opset.version for opset in model.proto.opset_import}
    return Surroundings(
        model.types,
        {name: value for name, value in model.values.items() if name not in given},
        frozenset(weights | constants),
        opsets,
        model.proto.ir_version,
        model.bodies,
        frozenset(item.name for item in graph.output),
    )


def find_opset(node: onnx.NodeProto, around: Surroundings) -> tuple[str, int]:
    """Return the domain of ``node`` and the version of it that the model imports."""
    domain = _domain(node.domain)
    return domain, around.opsets.get(domain, 1)


def count_tensor_nbytes(known: TensorType) -> int:
    """Return the bytes of a tensor; types below one byte count one per element."""
    dtype = NUMPY_DTYPES.get(known.elem_type)
    return math.prod(known.shape) * (1 if dtype is None else dtype.itemsize)


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain
