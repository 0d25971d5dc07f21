"""Problems as JSON files: ``checkmate.problem`` version 1.

Ops are in the order of the run. A tensor that no op makes is resident. Optional, with the value
that they have when absent: of an op ``backward`` (false), ``recomputable`` (true) and
``workspace_nbytes`` (0); of a tensor ``source`` (it owns its storage).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from checkmate.costs import Costs, Origin
from checkmate.errors import InputError
from checkmate.formats.fields import Fields, parse_document, read_bounded
from checkmate.graph import Graph, Op, OpId, Tensor, TensorId
from checkmate.problem import Problem

FORMAT = "checkmate.problem"
VERSION = 1

_DOCUMENT_KEYS = ("format", "version", "name", "ops", "tensors", "outputs")
_OP_KEYS = (
    "name", "time_ns", "workspace_nbytes", "inputs", "outputs", "backward", "recomputable",
)  # fmt: skip
_TENSOR_KEYS = ("name", "nbytes", "source")


def read_problem(path: Path) -> Problem:
    """Return the problem in the file at ``path``.

    Raises `InputError`, saying where, for a file that is too large or not such a document.
    """
    return parse_problem(read_bounded(path))


def parse_problem(data: bytes) -> Problem:
    """Return the problem in the JSON document ``data``; raises `InputError`, saying where."""
    document = parse_document(data, format_=FORMAT, versions=(VERSION,))
    document.check_keys(_DOCUMENT_KEYS)
    op_fields, tensor_fields = document.objects("ops"), document.objects("tensors")
    ids = {fields.text("name"): TensorId(i) for i, fields in enumerate(tensor_fields)}
    ops = tuple(_parse_op(fields, ids) for fields in op_fields)
    producers = {output: OpId(i) for i, op in enumerate(ops) for output in op.outputs}
    tensors = tuple(
        _parse_tensor(fields, ids, producers.get(TensorId(i)))
        for i, fields in enumerate(tensor_fields)
    )
    outputs = _find_ids("outputs", document.texts("outputs"), ids)
    costs = Costs(
        tuple(fields.integer("time_ns") for fields in op_fields),
        tuple(fields.integer("workspace_nbytes", 0) for fields in op_fields),
        Origin("file"),
    )
    return Problem(Graph(document.text("name"), ops, tensors, outputs), costs)


def render_problem(problem: Problem) -> str:
    """Return ``problem`` as a JSON document, one op or tensor a line; keys in fixed order."""
    graph, costs = problem.graph, problem.costs
    per_op = zip(graph.ops, costs.time_ns, costs.workspace_nbytes, strict=True)
    ops = [_render_op(graph, op, time_ns, workspace) for op, time_ns, workspace in per_op]
    tensors = [_render_tensor(graph, tensor) for tensor in graph.tensors]
    outputs = json.dumps([graph.tensors[output].name for output in graph.outputs])
    return (
        f'{{\n"format": "{FORMAT}",\n"version": {VERSION},\n"name": {json.dumps(graph.name)},\n'
        f'"ops": {_render_lines(ops)},\n"tensors": {_render_lines(tensors)},\n'
        f'"outputs": {outputs}\n}}\n'
    )


def _parse_op(fields: Fields, ids: Mapping[str, TensorId]) -> Op:
    fields.check_keys(_OP_KEYS)
    name = fields.text("name")
    return Op(
        name,
        _find_ids(f"op {name!r} inputs", fields.texts("inputs"), ids),
        _find_ids(f"op {name!r} outputs", fields.texts("outputs"), ids),
        fields.boolean("recomputable", default=True),
        fields.boolean("backward", default=False),
    )


def _parse_tensor(fields: Fields, ids: Mapping[str, TensorId], producer: OpId | None) -> Tensor:
    fields.check_keys(_TENSOR_KEYS)
    name = fields.text("name")
    source = None
    if "source" in fields:
        source = _find_ids(f"tensor {name!r} source", (fields.text("source"),), ids)[0]
    return Tensor(name, fields.integer("nbytes"), producer, source)


def _find_ids(
    place: str, names: Iterable[str], ids: Mapping[str, TensorId]
) -> tuple[TensorId, ...]:
    found = []
    for name in names:
        if name not in ids:
            raise InputError(f"{place}: tensor {name!r} is not among the tensors")
        found.append(ids[name])
    return tuple(found)


def _render_op(graph: Graph, op: Op, time_ns: int, workspace_nbytes: int) -> str:
    value: dict[str, object] = {"name": op.name, "time_ns": time_ns}
    if workspace_nbytes:
        value["workspace_nbytes"] = workspace_nbytes
    value["inputs"] = [graph.tensors[tensor].name for tensor in op.inputs]
    value["outputs"] = [graph.tensors[tensor].name for tensor in op.outputs]
    value["backward"] = op.backward
    if not op.recomputable:
        value["recomputable"] = False
    return json.dumps(value)


def _render_tensor(graph: Graph, tensor: Tensor) -> str:
    value: dict[str, object] = {"name": tensor.name, "nbytes": tensor.nbytes}
    if tensor.source is not None:
        value["source"] = graph.tensors[tensor.source].name
    return json.dumps(value)


def _render_lines(items: list[str]) -> str:
    return "[\n" + ",\n".join(items) + "\n]" if items else "[]"
