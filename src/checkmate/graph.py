"""The graph: ops in one fixed topological order, and the tensors on its edges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NewType

from checkmate.errors import GraphError
from checkmate.units import MAX_QUANTITY

OpId = NewType("OpId", int)
TensorId = NewType("TensorId", int)


@dataclass(frozen=True, slots=True)
class Op:
    """One node of the graph."""

    name: str
    inputs: tuple[TensorId, ...]
    """The tensors it reads, each once, in the order of its operands."""
    outputs: tuple[TensorId, ...]
    """The tensors it makes; a second compute makes all of them again."""
    recomputable: bool = True
    """False: it may run only once (unseeded random, stateful, optimizer update)."""
    backward: bool = False
    """True: it depends on the gradient of the loss."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One value on an edge of the graph."""

    name: str
    nbytes: int
    """What its storage occupies; a view occupies nothing of its own."""
    producer: OpId | None
    """None: resident, in memory throughout (graph inputs and parameters)."""
    source: TensorId | None = None
    """The tensor whose storage this view shares; None: it owns its storage."""


@dataclass(frozen=True, slots=True)
class Graph:
    """Ops in topological order, and tensors; ids are positions in these tuples.

    Raises `GraphError` when built from parts that contradict each other.
    """

    name: str
    ops: tuple[Op, ...]
    tensors: tuple[Tensor, ...]
    outputs: tuple[TensorId, ...]
    """Tensors that are in memory when the run ends."""

    def __post_init__(self) -> None:
        _check_names("op", (op.name for op in self.ops))
        _check_names("tensor", (tensor.name for tensor in self.tensors))
        _check_producers(self)
        _check_views(self)
        _check_order(self)

    @property
    def resident_nbytes(self) -> int:
        """Bytes of all graph inputs and parameters."""
        return sum(tensor.nbytes for tensor in self.tensors if tensor.producer is None)


def find_readers(graph: Graph) -> tuple[tuple[OpId, ...], ...]:
    """Return, per tensor, the ops that read it, in graph order."""
    readers: list[list[OpId]] = [[] for _ in graph.tensors]
    for position, op in enumerate(graph.ops):
        for tensor in op.inputs:
            readers[tensor].append(OpId(position))
    return tuple(map(tuple, readers))


def _check_names(kind: str, names: Iterable[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise GraphError(f"{kind} name {name!r} is used {count} times")


def _check_producers(graph: Graph) -> None:
    made: dict[TensorId, OpId] = {}
    for position, op in enumerate(graph.ops):
        _check_ids(f"op {op.name!r} inputs", op.inputs, len(graph.tensors))
        _check_ids(f"op {op.name!r} outputs", op.outputs, len(graph.tensors))
        for tensor_id in op.outputs:
            if tensor_id in made:
                raise GraphError(
                    f"tensor {graph.tensors[tensor_id].name!r} has two producers,"
                    f" {graph.ops[made[tensor_id]].name!r} and {op.name!r}"
                )
            made[tensor_id] = OpId(position)
    for index, tensor in enumerate(graph.tensors):
        if tensor.producer != made.get(TensorId(index)):
            raise GraphError(f"tensor {tensor.name!r} is not an output of its producer")
        if tensor.nbytes < 0:
            raise GraphError(f"tensor {tensor.name!r} has {tensor.nbytes} bytes")
    _check_ids("graph outputs", graph.outputs, len(graph.tensors))
    if sum(tensor.nbytes for tensor in graph.tensors) > MAX_QUANTITY:
        raise GraphError(f"the tensors of {graph.name!r} are larger than any memory")


def _check_ids(where: str, ids: Sequence[TensorId], n_tensors: int) -> None:
    for id_ in ids:
        if not 0 <= id_ < n_tensors:
            raise GraphError(f"{where} name tensor {id_} of {n_tensors}")
    if len(set(ids)) < len(ids):
        raise GraphError(f"{where} name one tensor twice")


def _check_views(graph: Graph) -> None:
    for tensor in graph.tensors:
        if tensor.source is None:
            continue
        if tensor.producer is None or tensor.source not in graph.ops[tensor.producer].inputs:
            raise GraphError(f"view {tensor.name!r} is made by an op that does not read its source")
        op = graph.ops[tensor.producer]
        if len(op.outputs) > 1 or not op.recomputable:
            raise GraphError(f"view {tensor.name!r} is made by an op that does more than that")
        if tensor.nbytes:
            raise GraphError(f"view {tensor.name!r} has {tensor.nbytes} bytes of its own")


def _check_order(graph: Graph) -> None:
    for position, op in enumerate(graph.ops):
        for tensor in op.inputs:
            producer = graph.tensors[tensor].producer
            if producer is not None and producer >= position:
                raise GraphError(
                    f"op {op.name!r} comes before {graph.ops[producer].name!r},"
                    f" which makes its input {graph.tensors[tensor].name!r}"
                )
