"""When tensors die: the frees that belong to an order of computes."""

from __future__ import annotations

from collections.abc import Container, Sequence

from checkmate.errors import ScheduleError
from checkmate.graph import Graph, OpId, TensorId
from checkmate.schedule import Compute, Free, Instruction, Schedule


def insert_frees(graph: Graph, order: Sequence[OpId]) -> Schedule:
    """Return the schedule that runs ``order`` and frees each tensor after its last use.

    A tensor that is computed again is freed after its last read before that; a graph output is
    kept from its last compute on. No schedule with the same order of computes has a lower peak
    at any instruction. Raises `ScheduleError` when an op reads what no earlier op has made.
    """
    deaths = _find_deaths(graph, order)
    instructions: list[Instruction] = []
    for position, op in enumerate(order):
        instructions.append(Compute(op))
        instructions.extend(map(Free, deaths[position]))
    return Schedule(tuple(instructions))


def _find_deaths(graph: Graph, order: Sequence[OpId]) -> list[list[TensorId]]:
    """Return, per position in ``order``, the tensors whose last use it is."""
    last_use: dict[TensorId, int] = {}
    deaths: list[list[TensorId]] = [[] for _ in order]
    for position, op_id in enumerate(order):
        op = graph.ops[op_id]
        for tensor in op.inputs:
            if graph.tensors[tensor].producer is not None:
                _check_made(graph, op_id, tensor, last_use)
                last_use[tensor] = position
        for tensor in op.outputs:
            if tensor in last_use:
                deaths[last_use[tensor]].append(tensor)
            last_use[tensor] = position
    kept = frozenset(graph.outputs)
    for tensor, position in last_use.items():
        if tensor not in kept:
            deaths[position].append(tensor)
    return deaths


def _check_made(graph: Graph, op: OpId, tensor: TensorId, made: Container[TensorId]) -> None:
    if tensor not in made:
        raise ScheduleError(
            f"op {graph.ops[op].name!r} reads tensor {graph.tensors[tensor].name!r}"
            " before any op has made it"
        )
