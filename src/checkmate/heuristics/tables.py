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


def find_uses(tables: Tables, stage: OpId) -> tuple[TensorId, ...]:
    """Return what must be in memory while the op of ``stage`` runs for the first time.

    That is what it reads; for the last op, the graph outputs too.
    """
    reads = tables.reads[stage]
    if stage < tables.n_ops - 1:
        return reads
    others = (output for output in tables.outputs if output not in tables.makes[stage])
    return tuple(dict.fromkeys((*reads, *others)))


def find_node_bound(tables: Tables) -> int:
    """Return memory that every order needs: that of one op alone, the largest of them."""
    needs = [
        sum(tables.nbytes[t] for t in (*find_uses(tables, OpId(op)), *tables.makes[op]))
        + tables.workspace_nbytes[op]
        for op in range(tables.n_ops)
    ]
    return tables.resident_nbytes + max(needs, default=0)
