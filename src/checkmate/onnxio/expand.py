"""A rewritten model as a problem of its own: copies are ops, fences have bytes.

What it takes is what a run of the file takes, to the byte: a fence is a few tiny tensors, which
the schedule alone does not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import onnx
from onnx import numpy_helper

from checkmate.costs import Costs
from checkmate.graph import Graph, Op, OpId, Tensor, TensorId
from checkmate.liveness import insert_frees
from checkmate.onnxio.inferred import Dims, find_sized, infer_dims, is_same_shape
from checkmate.onnxio.model import Model
from checkmate.onnxio.order import Wiring, sort_nodes, wire
from checkmate.onnxio.rewrite import name_computes, rewrite_model
from checkmate.onnxio.storage import MAX_COPIED_NBYTES
from checkmate.onnxio.windows import Fences
from checkmate.placement import ArenaRules
from checkmate.problem import Problem
from checkmate.schedule import Schedule

_SCALAR_NBYTES = 8


def expand(
    problem: Problem, model: Model, schedule: Schedule, fences: Fences
) -> tuple[Problem, Schedule]:
    """Return what the file runs that ``schedule`` with ``fences`` makes of ``model``.

    ``problem`` is that of ``model``. Ops are in the order in which onnxruntime runs them with the
    options that we recommend.
    """
    names = name_computes(model, schedule)
    expander = _Expander(problem, model, dict(zip(names, schedule.order, strict=True)))
    rewritten = rewrite_model(model, schedule, fences)
    n_constants = sum(node.op_type == "Constant" for node in model.proto.graph.node)
    nodes = rewritten.graph.node[n_constants:]
    for node in nodes:
        if node.op_type == "Constant":
            expander.add_constant(node)
    wirings = sort_nodes([wire(node) for node in nodes if node.op_type != "Constant"])
    expander.learn_shapes(wirings, infer_dims(rewritten))
    for wiring in wirings:
        expander.add_op(wiring)
    expanded = expander.finish([output.name for output in model.proto.graph.output])
    return expanded, insert_frees(expanded.graph, [OpId(i) for i in range(len(wirings))])


def _match_reads(own: Wiring, copy: Wiring) -> dict[str, str]:
    """Return by what a node reads what its copy reads in place of it.

    What reads nothing may read a condition.
    """
    return dict(zip(own.reads, copy.reads, strict=True)) if own.reads else {}


@dataclass(frozen=True, slots=True)
class _Made:
    """What an op makes: bytes, or a view of what it reads."""

    nbytes: int
    source: str | None = None


class _Expander:
    """Collects tensors and ops; knows of which op of the problem each is."""

    def __init__(self, problem: Problem, model: Model, computes: dict[str, OpId]) -> None:
        self._problem = problem
        self._wirings = tuple(wire(node) for node in model.nodes)
        self._computes = computes
        self._types = model.types
        self._ranks: dict[str, int] = {}
        """Of what computes make."""
        self._tensors = [t for t in problem.graph.tensors if t.producer is None]
        self._ids = {tensor.name: TensorId(i) for i, tensor in enumerate(self._tensors)}
        self._known = {tensor.name: tensor for tensor in problem.graph.tensors}
        self._ops: list[Op] = []
        self._origin: list[OpId | None] = []
        self._n_joined: dict[OpId, int] = {}
        """Sizes that a fence joins, where it makes partial results of them."""
        self._constants: list[TensorId] = []
        self._in_place: dict[TensorId, TensorId] = {}
        self._sized: dict[str, Dims | None] = {}
        """Tensors whose shape onnxruntime knows: those behind a fence it may not."""

    def learn_shapes(self, wirings: Sequence[Wiring], dims: Mapping[str, Dims]) -> None:
        """Note what onnxruntime can tell of the shapes of what is made, of ``dims`` inferred."""
        self._sized = find_sized(self._ids, wirings, dims)

    def add_constant(self, node: onnx.NodeProto) -> None:
        nbytes = numpy_helper.to_array(node.attribute[0].t).nbytes
        tensor = self._add_tensor(node.output[0], _Made(nbytes), None)
        if nbytes <= MAX_COPIED_NBYTES:
            self._constants.append(tensor)

    def add_op(self, wiring: Wiring) -> None:
        op = self._computes.get(wiring.node.name)
        position = OpId(len(self._ops))
        made = self._describe(wiring) if op is None else self._copy(op, wiring)
        inputs = tuple(self._ids[name] for name in wiring.reads)
        outputs = tuple(
            self._add_tensor(name, what, position)
            for name, what in zip(wiring.makes, made, strict=True)
        )
        self._ops.append(Op(wiring.node.name, inputs, outputs))
        self._origin.append(op)
        if op is not None:
            self._place(op, wiring)
        elif wiring.node.op_type == "Max" and len(wiring.node.input) > 2:
            self._n_joined[position] = len(wiring.node.input)

    def finish(self, outputs: Sequence[str]) -> Problem:
        read = {tensor for op in self._ops for tensor in op.inputs}
        made = [tensor for op in self._ops for tensor in op.outputs]
        # onnxruntime frees a tensor after its last reader: without one, never.
        ends = [self._ids[name] for name in outputs] + [t for t in made if t not in read]
        name = self._problem.graph.name
        graph = Graph(name, tuple(self._ops), tuple(self._tensors), tuple(dict.fromkeys(ends)))
        return Problem(graph, self._make_costs(), self._make_rules())

    def _add_tensor(self, name: str, made: _Made, producer: OpId | None) -> TensorId:
        source = None if made.source is None else self._ids[made.source]
        self._ids[name] = TensorId(len(self._tensors))
        self._tensors.append(Tensor(name, made.nbytes, producer, source))
        return self._ids[name]

    def _copy(self, op: OpId, wiring: Wiring) -> list[_Made]:
        """Return what a compute of ``op`` makes, which reads other instances of its tensors."""
        own = self._wirings[op]
        read = _match_reads(own, wiring)
        tensors = self._problem.graph.tensors
        made: list[_Made] = []
        for name, instance in zip(own.makes, wiring.makes, strict=True):
            self._ranks[instance] = len(self._types[name].shape)
            known = self._known[name]
            source = None if known.source is None else read[tensors[known.source].name]
            made.append(_Made(known.nbytes, source))
        return made

    def _describe(self, wiring: Wiring) -> list[_Made]:
        """Return what a node of a fence makes."""
        node = wiring.node
        if node.op_type == "Reshape":
            return [_Made(0, node.input[0])]
        if node.op_type == "Shape":
            return [_Made(_SCALAR_NBYTES * self._ranks[node.input[0]])]
        if node.op_type in ("Mul", "Add"):
            return [_Made(self._tensors[self._ids[node.input[1]]].nbytes)]
        if node.op_type == "Slice" or (
            node.op_type in ("Cast", "IsNaN") and self._is_empty(node.input[0])
        ):
            return [_Made(0)]
        return [_Made(_SCALAR_NBYTES)]

    def _is_empty(self, name: str) -> bool:
        return self._tensors[self._ids[name]].nbytes == 0

    def _place(self, op: OpId, wiring: Wiring) -> None:
        """Note what the output may take over; onnxruntime must know that the shapes are equal."""
        rules, tensors = self._problem.arena, self._problem.graph.tensors
        if rules is None:
            return
        own = self._wirings[op]
        read = _match_reads(own, wiring)
        made = dict(zip(own.makes, wiring.makes, strict=True))
        for output in self._problem.graph.ops[op].outputs:
            given = rules.in_place.get(output)
            if given is not None:
                place, source = made[tensors[output].name], read[tensors[given].name]
                if is_same_shape(self._sized, place, source):
                    self._in_place[self._ids[place]] = self._ids[source]

    def _make_costs(self) -> Costs:
        costs = self._problem.costs
        workspace_nbytes = [0 if op is None else costs.workspace_nbytes[op] for op in self._origin]
        for joint in self._n_joined:
            workspace_nbytes[joint] = _SCALAR_NBYTES
        return Costs(
            tuple(0 if op is None else costs.time_ns[op] for op in self._origin),
            tuple(workspace_nbytes),
            costs.origin,
        )

    def _make_rules(self) -> ArenaRules | None:
        rules = self._problem.arena
        if rules is None:
            return None
        names = [self._problem.graph.tensors[tensor].name for tensor in rules.resident]
        partial = (OpId(i) for i, op in enumerate(self._origin) if op in rules.partial)
        n_later = {
            OpId(i): rules.n_later[op]
            for i, op in enumerate(self._origin)
            if op is not None and op in rules.n_later
        }
        return replace(
            rules,
            resident=(*(self._ids[name] for name in names), *self._constants),
            in_place=self._in_place,
            partial=frozenset((*partial, *self._n_joined)),
            n_later=n_later | {joint: n - 3 for joint, n in self._n_joined.items()},
        )
