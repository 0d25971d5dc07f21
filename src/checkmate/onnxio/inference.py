"""What each op of a graph makes: one pass over the nodes, types and small values together.

Each node is asked once, when all that it reads is known: onnx's inference of that one operator,
then rules of ours. Sizes that are computed inside the graph are constants by then, so that
nothing is symbolic and no second pass could learn more.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping
from functools import lru_cache

import numpy as np
import onnx
from onnx import numpy_helper

from checkmate.errors import InputError
from checkmate.onnxio.bodies import Opened, Opener, infer_control, is_control
from checkmate.onnxio.model import Body, TensorType, find_weight_types
from checkmate.onnxio.order import Wiring, describe, find_captures, sort_nodes, wire
from checkmate.onnxio.shape_rules import find_rule
from checkmate.onnxio.shape_rules.call import Call, Made, as_known
from checkmate.onnxio.sizes import count_nbytes
from checkmate.onnxio.values import Opsets, find_constants, find_values


class Scope:
    """What is known of one graph so far; `learn` adds what an op makes."""

    def __init__(self, opsets: Opsets, measured: Mapping[str, TensorType]) -> None:
        """``measured`` are believed where nothing else tells what an op makes."""
        self.types: dict[str, TensorType] = {}
        self.values: dict[str, np.ndarray] = {}
        self.bodies: dict[str, tuple[Body, ...]] = {}
        """Per control-flow op, by the first tensor that it makes."""
        self.complaints: list[str] = []
        """What onnx has against ops that are known all the same."""
        self._opsets = opsets
        self._measured = measured
        self._protos: dict[str, onnx.TypeProto] = {}
        self._data: dict[str, onnx.TensorProto] = {}
        self._makers: dict[str, onnx.NodeProto] = {}

    def add_types(self, types: Mapping[str, TensorType]) -> None:
        """Note the types of tensors."""
        self.types.update(types)
        for name, known in types.items():
            proto = onnx.helper.make_tensor_type_proto(known.elem_type, known.shape)
            self._protos[name] = proto

    def add_values(self, values: Mapping[str, np.ndarray]) -> None:
        """Note the values of small tensors whose types are known."""
        self.values.update(values)
        for name, value in values.items():
            self._data[name] = numpy_helper.from_array(np.asarray(value), name)

    def add_graph(self, graph: onnx.GraphProto) -> None:
        """Note the initializers and constants of ``graph``."""
        self.add_types(find_weight_types(graph))
        constants = find_constants(graph)
        self.add_types(_find_types(constants.items(), self.types))
        self.add_values(constants)

    def learn(self, wiring: Wiring) -> None:
        """Note what an op makes; raise `InputError` that names what stays unknown of it."""
        call = Call(wiring.node, self.types, self.values, self._makers)
        if is_control(wiring.node):
            found, bodies = _enter(call, self.open_body)
            self.bodies[wiring.makes[0]] = bodies
        else:
            found = self._infer(wiring, call)
        unknown = next((name for name in wiring.makes if name not in found), None)
        if unknown is not None:
            raise _explain(wiring.node, unknown, None)
        for name, known in found.items():
            # onnx takes a window larger than what it moves over, and ends the process when it
            # meets what comes of that.
            if min(known.shape, default=0) < 0:
                raise _misfit(wiring.node, f"{name!r} would have the shape {list(known.shape)}")
        self.add_types(found)
        self._makers.update(dict.fromkeys(wiring.makes, wiring.node))

    def open_body(self, graph: onnx.GraphProto, inputs: tuple[TensorType, ...]) -> Opened:
        """Return what ``graph``, within an op of this scope, makes of ``inputs``."""
        inner = Scope(self._opsets, self._measured)
        for name in find_captures(graph):
            if name not in self.types:
                raise InputError(f"graph {graph.name!r} reads {name!r}, which nothing makes")
            inner.add_types({name: self.types[name]})
            if name in self.values:
                inner.add_values({name: self.values[name]})
        if len(inputs) != len(graph.input):
            raise InputError(
                f"graph {graph.name!r} has {len(graph.input)} inputs, but is given {len(inputs)}"
            )
        inner.add_types({i.name: known for i, known in zip(graph.input, inputs, strict=True)})
        inner.add_graph(graph)
        wirings = sort_nodes([wire(node) for node in graph.node])
        for wiring in wirings:
            inner.learn(wiring)
        outputs = tuple(output.name for output in graph.output)
        for name in outputs:
            if name not in inner.types:
                raise InputError(f"output {name!r} of graph {graph.name!r} is made by nothing")
        weights = sum(count_nbytes(*item) for item in find_weight_types(graph).items())
        body = Body(wirings, outputs, inner.types, inner.bodies, held_nbytes=weights)
        return Opened(body, tuple(inner.types[name] for name in outputs), inner.values)

    def _infer(self, wiring: Wiring, call: Call) -> dict[str, TensorType]:
        """Return the types of what an op makes, and note the values."""
        node = wiring.node
        inferred, complaint = self._ask_onnx(node)
        found = {n: known for n, t in inferred.items() if (known := as_known(t)) is not None}
        if any(name not in found for name in wiring.makes):
            found = _ask_rule(call, complaint) | found
        # A copy of all types for each op would take time with the square of the graph.
        values = find_values(wiring, ChainMap(found, self.types), self.values, self._opsets)
        found = _find_types(values.items(), {}) | found
        missing = [name for name in wiring.makes if name not in found]
        found |= {name: self._measured[name] for name in missing if name in self._measured}
        for name in missing:
            if name not in found:
                raise _explain(node, name, inferred.get(name), complaint)
        self.add_values({n: v for n, v in values.items() if _fits(v, found[n])})
        if complaint:
            self.complaints.append(f"{describe(node)}: {complaint}")
        return found

    def _ask_onnx(self, node: onnx.NodeProto) -> tuple[dict[str, onnx.TypeProto], str]:
        """Return what onnx infers of the one op, and what it complains of."""
        domain = "" if node.domain == "ai.onnx" else node.domain
        schema = find_schema(node.op_type, domain, self._opsets.find(domain))
        if schema is None:
            return {}, ""
        read = dict.fromkeys(name for name in node.input if name)
        types = {name: self._protos[name] for name in read}
        data = {name: self._data[name] for name in read if name in self._data}
        try:
            return onnx.shape_inference.infer_node_outputs(
                schema, node, types, data, opset_imports=list(self._opsets.imports)
            ), ""
        except _COMPLAINTS as error:
            return self._ask_leniently(node, types, data), _first_line(error)

    def _ask_leniently(
        self,
        node: onnx.NodeProto,
        types: Mapping[str, onnx.TypeProto],
        data: Mapping[str, onnx.TensorProto],
    ) -> dict[str, onnx.TypeProto]:
        """Return what onnx infers of a model of the op, which may have unknown attributes."""
        graph = onnx.GraphProto(name="one", node=[node], initializer=list(data.values()))
        graph.input.extend(onnx.ValueInfoProto(name=name, type=types[name]) for name in types)
        model = onnx.ModelProto(ir_version=8, graph=graph, opset_import=self._opsets.imports)
        try:
            inferred = onnx.shape_inference.infer_shapes(model)
        except _COMPLAINTS:
            return {}
        return {info.name: info.type for info in inferred.graph.value_info}


_COMPLAINTS = (
    onnx.checker.ValidationError,
    onnx.shape_inference.InferenceError,
    ValueError,
    RuntimeError,
    KeyError,
)
"""What onnx raises where an op is not as it should be."""

_MISFITS = (IndexError, ValueError, ZeroDivisionError)
"""What arithmetic on shapes raises that do not fit an operator."""


@lru_cache(maxsize=4096)
def find_schema(op_type: str, domain: str, version: int) -> onnx.defs.OpSchema | None:
    """Return onnx's description of an operator; None: it has none."""
    if not 1 <= version < 2**31 or not onnx.defs.has(op_type, version, domain):
        return None
    return onnx.defs.get_schema(op_type, version, domain)


def _enter(call: Call, open_body: Opener) -> tuple[dict[str, TensorType], tuple[Body, ...]]:
    """Return what a control-flow op makes, and its bodies."""
    try:
        made, bodies = infer_control(call, open_body)
    except _MISFITS as error:
        raise _misfit(call.node, _first_line(error)) from error
    return _name_outputs(call.node, made), bodies


def _ask_rule(call: Call, complaint: str) -> dict[str, TensorType]:
    """Return what a rule of ours says; it knows best where onnx complains of the inputs."""
    rule = find_rule(call.node)
    if rule is None:
        return {}
    try:
        return _name_outputs(call.node, rule(call))
    except (onnx.shape_inference.InferenceError, *_MISFITS) as error:
        raise _misfit(call.node, complaint or _first_line(error)) from error


def _name_outputs(node: onnx.NodeProto, made: Made) -> dict[str, TensorType]:
    pairs = zip(node.output, made, strict=False)
    return {name: known for name, known in pairs if name and known is not None}


def _find_types(
    values: Iterable[tuple[str, np.ndarray]], known: Mapping[str, TensorType]
) -> dict[str, TensorType]:
    """Return the types of values that have none in ``known``."""
    return {
        name: TensorType(onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in values
        if name not in known
    }


def _fits(value: np.ndarray, known: TensorType) -> bool:
    """Return whether a value has the type that its tensor has."""
    elem_type = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
    return TensorType(elem_type, value.shape) == known


def _misfit(node: onnx.NodeProto, complaint: str) -> InputError:
    return InputError(f"shapes do not fit together at op {describe(node)}: {complaint}")


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


_MEASURE_HINT = "if onnxruntime can run the model, take shapes from a run: --shapes-from-run"


def _explain(
    node: onnx.NodeProto, name: str, found: onnx.TypeProto | None, complaint: str = ""
) -> InputError:
    """Return the error that says which tensor, and which dimension of it, is not known."""
    if complaint:
        return _misfit(node, complaint)
    tensor = f"tensor {name!r}, made by {describe(node)},"
    if found is None and not onnx.defs.has(node.op_type, node.domain):
        return InputError(
            f"op {describe(node)} is not known to onnx, so the shape of tensor {name!r} is unknown",
            hint=_MEASURE_HINT,
        )
    kind = None if found is None else found.WhichOneof("value")
    if found is None or (kind == "tensor_type" and not found.tensor_type.HasField("shape")):
        return InputError(f"{tensor} has an unknown shape", hint=_MEASURE_HINT)
    if kind != "tensor_type":
        return InputError(f"{tensor} is a {str(kind).removesuffix('_type')}, not a tensor")
    shape = found.tensor_type.shape.dim
    axis = next((i for i, dim in enumerate(shape) if not dim.HasField("dim_value")), 0)
    return InputError(
        f"{tensor} has an unknown dimension (axis {axis} of {len(shape)})",
        hint="its size depends on data; give the op a constant shape, or --shapes-from-run",
    )
