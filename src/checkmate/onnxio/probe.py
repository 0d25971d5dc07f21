"""A model that tells the types of its own tensors when it is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from checkmate.onnxio.dims import bind_inputs
from checkmate.onnxio.functions import inline_functions
from checkmate.onnxio.load import load_proto
from checkmate.onnxio.model import TensorType
from checkmate.onnxio.order import sort_nodes, wire
from checkmate.onnxio.read import check_reads
from checkmate.onnxio.sequences import lower_sequences
from checkmate.onnxio.shapes import find_unknown

_PREFIX = "checkmate_probe_"


@dataclass(frozen=True, slots=True)
class Probe:
    """What to run, and how to read it."""

    proto: onnx.ModelProto
    """Its outputs are small: a shape per tensor, and no element of it."""
    inputs: Mapping[str, TensorType]
    names: tuple[str, ...]
    """The tensors that it tells of."""

    def read(self, outputs: Mapping[str, np.ndarray]) -> dict[str, TensorType]:
        """Return the types that a run has told."""
        return {
            name: TensorType(
                helper.np_dtype_to_tensor_dtype(outputs[f"{_PREFIX}none_{position}"].dtype),
                tuple(int(size) for size in outputs[f"{_PREFIX}shape_{position}"]),
            )
            for position, name in enumerate(self.names)
        }


def build_probe(path: Path, dims: Mapping[str, int]) -> Probe:
    """Return the probe for what is not known of the model in ``path``.

    Raises `GraphError` when an op reads what nothing makes.
    """
    proto = lower_sequences(inline_functions(load_proto(path)))
    inputs = bind_inputs(proto.graph, dims)
    wirings = sort_nodes([wire(node) for node in proto.graph.node])
    check_reads(proto.graph, wirings)
    names = find_unknown(proto, wirings, inputs)
    probing = onnx.ModelProto()
    probing.CopyFrom(proto)
    del probing.graph.output[:]
    del probing.graph.value_info[:]
    bounds = {"zero": np.array([0]), "one": np.array([1])}
    probing.graph.initializer.extend(
        numpy_helper.from_array(value, _PREFIX + name) for name, value in bounds.items()
    )
    for position, name in enumerate(names):
        _add_probe(probing.graph, position, name)
    return Probe(probing, inputs, names)


def _add_probe(graph: onnx.GraphProto, position: int, name: str) -> None:
    """Make the shape of a tensor an output, and none of its elements, which tells their type."""
    shape, flat, none = (f"{_PREFIX}{role}_{position}" for role in ("shape", "flat", "none"))
    zero, one = _PREFIX + "zero", _PREFIX + "one"
    graph.node.extend(
        (
            helper.make_node("Shape", [name], [shape]),
            helper.make_node("Flatten", [name], [flat], axis=0),
            helper.make_node("Slice", [flat, zero, zero, one], [none]),
        )
    )
    graph.output.extend((onnx.ValueInfoProto(name=shape), onnx.ValueInfoProto(name=none)))
