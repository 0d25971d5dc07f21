"""What a heuristic reads over and over, laid out once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from checkmate.graph import OpId, TensorId, find_readers
from checkmate.problem import Problem


@dataclass(frozen=True, slots=True)
class Tables:
    """A problem without views, as tuples by id. Resident tensors appear only in their sum."""

    n_ops: int
    reads: tuple[tuple[TensorId, ...], ...]
    """Per op: its inputs that are not resident."""
    makes: tuple[tuple[TensorId, ...], ...]
    time_ns: tuple[int, ...]
    workspace_nbytes: tuple[int, ...]
    recomputable: tuple[bool, ...]
    backward: tuple[bool, ...]
    nbytes: tuple[int, ...]
    """Per tensor."""
    producers: tuple[OpId, ...]
    """Per tensor; -1 where it is resident."""
    readers: tuple[tuple[OpId, ...], ...]
    """Per tensor, in graph order."""
    outputs: tuple[TensorId, ...]
    """Graph outputs that are not resident."""
    resident_nbytes: int


def make_tables(problem: Problem) -> Tables:
    """Return the tables of ``problem``, whose views must have been folded."""
    graph, costs = problem.graph, problem.costs

    def drop_resident(tensors: Iterable[TensorId]) -> tuple[TensorId, ...]:
        return tuple(t for t in tensors if graph.tensors[t].producer is not None)

    return Tables(
        n_ops=len(graph.ops),
        reads=tuple(drop_resident(op.inputs) for op in graph.ops),
        makes=tuple(op.outputs for op in graph.ops),
        time_ns=costs.time_ns,
        workspace_nbytes=costs.workspace_nbytes,
        recomputable=tuple(op.recomputable for op in graph.ops),
        backward=tuple(op.backward for op in graph.ops),
        nbytes=tuple(tensor.nbytes for tensor in graph.tensors),
        producers=tuple(OpId(-1) if t.producer is None else t.producer for t in graph.tensors),
        readers=find_readers(graph),
        outputs=drop_resident(graph.outputs),
        resident_nbytes=graph.resident_nbytes,
    )


def find_node_bound(tables: Tables) -> tuple[int, OpId]:
    """Return the least memory that any schedule needs, and the op that needs it.

    That is the largest sum of an op's inputs, outputs and workspace, beside what is resident.
    """
    needs = [
        sum(map(tables.nbytes.__getitem__, (*tables.reads[op], *tables.makes[op])))
        + tables.workspace_nbytes[op]
        for op in range(tables.n_ops)
    ]
    binding = max(range(tables.n_ops), key=needs.__getitem__, default=-1)
    return tables.resident_nbytes + (needs[binding] if needs else 0), OpId(binding)
