"""A model of one op, several times over, each with inputs of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import helper, numpy_helper

from checkmate.errors import RunError
from checkmate.onnxio.order import HOISTED_OPS
from checkmate.onnxio.views import find_source
from checkmate.profiler.signature import is_embedded
from checkmate.profiler.steering import derive_values, find_upper, is_positive
from checkmate.profiler.surroundings import Surroundings, count_tensor_nbytes, find_opset
from checkmate.runtime.dtypes import NUMPY_DTYPES
from checkmate.runtime.inputs import make_inputs
from checkmate.runtime.protocol import TensorSpec

_MAX_WEIGHT_NBYTES = 2**20
"""Larger weights are bound like other inputs: without prepacking kernels treat both alike, and a
model file holds at most two gigabytes."""

_GRAPH_KINDS = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)


class UnmeasurableError(RunError):
    """An op that cannot run on its own."""


@dataclass(frozen=True, slots=True)
class OneOp:
    """A model of copies of one op and what to bind for a run."""

    proto: onnx.ModelProto
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


def build_one_op(node: onnx.NodeProto, around: Surroundings, n_copies: int) -> OneOp:
    """Return a model of ``n_copies`` of ``node``.

    Copies share nothing, so that none finds in a cache what another has read. Numbers that steer
    the op (shapes, axes, exponents) stay constants and weights stay initializers. A view is read
    by a Size, as of an output that is bound onnxruntime makes a copy; what Shape and Size make lies
    on the host. Raises
    `UnmeasurableError` for an op with a subgraph, or with a tensor that has no known type.
    """
    _check(node, around)
    values = derive_values(node, around)
    values |= {
        name: around.values[name]
        for name in node.input
        if name and name not in values and is_embedded(name, around)
    }
    specs = _specify(node, around, values)
    weights = make_inputs([spec for spec in specs if _is_weight(spec, around)], seed=0) | values
    given = tuple(spec for spec in specs if spec.name not in weights)
    is_hoisted = not node.domain and node.op_type in HOISTED_OPS
    made = tuple(_describe(name, around, on_host=is_hoisted) for name in node.output if name)
    return _assemble(node, around, n_copies, _Parts(given, made, weights))


@dataclass(frozen=True, slots=True)
class _Parts:
    given: tuple[TensorSpec, ...]
    made: tuple[TensorSpec, ...]
    fixed: dict[str, np.ndarray]


def _assemble(node: onnx.NodeProto, around: Surroundings, n_copies: int, parts: _Parts) -> OneOp:
    graph = onnx.GraphProto(name="one_op")
    inputs: list[TensorSpec] = []
    outputs: list[TensorSpec] = []
    for copy in range(n_copies):
        graph.node.append(_copy_node(node, copy))
        inputs += [_rename(spec, copy) for spec in parts.given]
        if find_source(node, around.outputs) is None:
            outputs += [_rename(spec, copy) for spec in parts.made]
        else:
            graph.node.append(_make_reader(graph.node[-1].output[0]))
            size = TensorSpec(graph.node[-1].output[0], onnx.TensorProto.INT64, (), on_host=True)
            outputs.append(size)
        graph.initializer.extend(
            numpy_helper.from_array(array, _name(name, copy)) for name, array in parts.fixed.items()
        )
    graph.input.extend(map(_make_value_info, inputs))
    graph.output.extend(map(_make_value_info, outputs))
    domain, version = find_opset(node, around)
    opsets = [helper.make_opsetid(domain, version)]
    if domain:
        opsets.append(helper.make_opsetid("", around.opsets.get("", 18)))
    model = helper.make_model(graph, opset_imports=opsets, ir_version=around.ir_version)
    return OneOp(model, tuple(inputs), tuple(outputs))


def _check(node: onnx.NodeProto, around: Surroundings) -> None:
    if any(attribute.type in _GRAPH_KINDS for attribute in node.attribute):
        raise UnmeasurableError(f"op {node.name!r} ({node.op_type}) has a subgraph of its own")
    for name in (*node.input, *node.output):
        if not name:
            continue
        known = around.types.get(name)
        if known is None or known.elem_type not in NUMPY_DTYPES:
            raise UnmeasurableError(
                f"op {node.name!r} ({node.op_type}): tensor {name!r} has no type that can be run"
            )


def _specify(
    node: onnx.NodeProto, around: Surroundings, values: dict[str, np.ndarray]
) -> list[TensorSpec]:
    """Return the inputs of ``node`` that have no fixed value, each once."""
    specs: dict[str, TensorSpec] = {}
    for position, name in enumerate(node.input):
        if not name or name in values or name in specs:
            continue
        known = around.types[name]
        upper = find_upper(node, position, around)
        specs[name] = TensorSpec(
            name, known.elem_type, known.shape, upper, is_positive(node, position)
        )
    return list(specs.values())


def _is_weight(spec: TensorSpec, around: Surroundings) -> bool:
    is_small = count_tensor_nbytes(around.types[spec.name]) <= _MAX_WEIGHT_NBYTES
    return spec.name in around.weights and is_small


def _describe(name: str, around: Surroundings, *, on_host: bool) -> TensorSpec:
    known = around.types[name]
    return TensorSpec(name, known.elem_type, known.shape, on_host=on_host)


def _copy_node(node: onnx.NodeProto, copy: int) -> onnx.NodeProto:
    clone = onnx.NodeProto()
    clone.CopyFrom(node)
    clone.name = f"copy{copy}"
    clone.input[:] = [name and _name(name, copy) for name in node.input]
    clone.output[:] = [name and _name(name, copy) for name in node.output]
    return clone


def _make_reader(name: str) -> onnx.NodeProto:
    return helper.make_node("Size", [name], [f"{name}/size"], name=f"{name}/size")


def _rename(spec: TensorSpec, copy: int) -> TensorSpec:
    return replace(spec, name=_name(spec.name, copy))


def _name(name: str, copy: int) -> str:
    return f"{copy}/{name}"


def _make_value_info(spec: TensorSpec) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(spec.name, spec.elem_type, spec.shape)
