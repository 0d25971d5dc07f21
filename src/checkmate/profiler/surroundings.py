"""What an op sees of its model: types, known values, weights, versions of operator sets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx

from checkmate.onnxio.model import Model, TensorType
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


def survey(model: Model) -> Surroundings:
    """Return what the ops of ``model`` see."""
    graph = model.proto.graph
    # An initializer that is also an input can be replaced by the caller, so it is not fixed.
    given = {item.name for item in graph.input}
    weights = {tensor.name for tensor in graph.initializer if tensor.name not in given}
    constants = {node.output[0] for node in graph.node if node.op_type == "Constant"}
    opsets = {_domain(opset.domain): opset.version for opset in model.proto.opset_import}
    return Surroundings(
        model.types,
        {name: value for name, value in model.values.items() if name not in given},
        frozenset(weights | constants),
        opsets,
        model.proto.ir_version,
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
