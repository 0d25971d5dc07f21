"""A training graph of blocks with more of them, as a problem.

Ops and tensors of block ``b`` have ``l.b`` in their names, as in `graphs/gpt2-full-b8.onnx`. Copies
of a block in the middle stand after it in the forward pass and before it in the backward pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from checkmate.costs import Costs
from checkmate.graph import Graph, Op, OpId, Tensor, TensorId
from checkmate.problem import Problem

_BLOCK = re.compile(r"(?<=\bl\.)\d+(?=[./])")
_COPIED = 5


@dataclass(frozen=True, slots=True)
class _Copy:
    """An op of the graph and by how many blocks its copy is moved."""

    op: int
    shift: int


def repeat_blocks(problem: Problem, n_blocks: int) -> Problem:
    """Return ``problem`` with so many blocks, at least as many as it has."""
    graph, costs = problem.graph, problem.costs
    found = [block for tensor in graph.tensors if (block := _find_block(tensor.name)) is not None]
    n_more = n_blocks - 1 - max(found)
    copies = list(_lay_out(graph, n_more))
    builder = _Builder(graph, n_more)
    for copy in copies:
        builder.add(copy)
    outputs = tuple(
        builder.ids[_move(graph.tensors[e].name, shift)]
        for e in graph.outputs
        for shift in _find_shifts(graph.tensors[e].name, n_more)
    )
    name = f"{graph.name}-{n_blocks}"
    made = Graph(name, tuple(builder.ops), tuple(builder.tensors), outputs)
    times = tuple(costs.time_ns[copy.op] for copy in copies)
    workspaces = tuple(costs.workspace_nbytes[copy.op] for copy in copies)
    return Problem(made, Costs(times, workspaces, costs.origin))


class _Builder:
    """Adds copies of ops, and their tensors, to those that are resident."""

    def __init__(self, graph: Graph, n_more: int) -> None:
        self._graph = graph
        self._n_more = n_more
        self.ids: dict[str, TensorId] = {}
        self.tensors: list[Tensor] = []
        self.ops: list[Op] = []
        for tensor in graph.tensors:
            if tensor.producer is None:
                for shift in _find_shifts(tensor.name, n_more):
                    self._add(replace(tensor, name=_move(tensor.name, shift)))

    def add(self, copy: _Copy) -> None:
        """Add the copy of an op."""
        op, producer = self._graph.ops[copy.op], OpId(len(self.ops))
        inputs = tuple(self._find(e, copy) for e in op.inputs)
        for e in op.outputs:
            old = self._graph.tensors[e]
            source = None if old.source is None else self._find(old.source, copy)
            name = self._name(e, copy)
            self._add(replace(old, name=name, producer=producer, source=source))
        outputs = tuple(self._find(e, copy) for e in op.outputs)
        name = _move(op.name, copy.shift)
        self.ops.append(replace(op, name=name, inputs=inputs, outputs=outputs))

    def _name(self, tensor: TensorId, copy: _Copy) -> str:
        """Return the name of a tensor for a copy; ops of no block have those at the ends."""
        name = self._graph.tensors[tensor].name
        is_outside = _find_block(self._graph.ops[copy.op].name) is None
        return _move(name, _find_shifts(name, self._n_more)[-1] if is_outside else copy.shift)

    def _find(self, tensor: TensorId, copy: _Copy) -> TensorId:
        return self.ids[self._name(tensor, copy)]

    def _add(self, tensor: Tensor) -> None:
        self.ids[tensor.name] = TensorId(len(self.tensors))
        self.tensors.append(tensor)


def _find_block(name: str) -> int | None:
    match = _BLOCK.search(name)
    return None if match is None else int(match[0])


def _find_shifts(name: str, n_more: int) -> range:
    """Return by how many blocks the copies of what has this name are moved."""
    block = _find_block(name)
    if block is None or block < _COPIED:
        return range(1)
    return range(n_more + 1) if block == _COPIED else range(n_more, n_more + 1)


def _move(name: str, shift: int) -> str:
    return _BLOCK.sub(lambda match: str(int(match[0]) + shift), name)


def _lay_out(graph: Graph, n_more: int) -> Iterator[_Copy]:
    """Yield the copies of all ops in order; those of a run of copied ops stay together."""
    k, half = 0, len(graph.ops) // 3
    while k < len(graph.ops):
        end = k + 1
        if _find_block(graph.ops[k].name) == _COPIED:
            while _find_block(graph.ops[end].name) == _COPIED:
                end += 1
        shifts = _find_shifts(graph.ops[k].name, n_more)
        for shift in shifts if k < half else reversed(shifts):
            yield from (_Copy(op, shift) for op in range(k, end))
        k = end
