"""When tensors die: the frees that belong to an order of computes."""

from __future__ import annotations

from collections import Counter
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


def remove_unread(graph: Graph, order: Sequence[OpId]) -> tuple[OpId, ...]:
    """Return ``order`` without computes of which nothing is read before the next one of their op.

    An op that a search ran because its turn had come, dropped at once and ran again where it was
    needed, keeps the later compute alone. Each op keeps one; the peak does not rise.
    """
    kept = list(order)
    while True:
        unread = _find_unread(graph, kept)
        if not unread:
            return tuple(kept)
        kept = [op for position, op in enumerate(kept) if position not in unread]


def _find_unread(graph: Graph, order: Sequence[OpId]) -> frozenset[int]:
    """Return the positions whose outputs nobody reads before the same op runs again."""
    latest: dict[OpId, int] = {}
    unread: set[int] = set()
    read: set[int] = set()
    for position, op_id in enumerate(order):
        for tensor in graph.ops[op_id].inputs:
            producer = graph.tensors[tensor].producer
            if producer is not None:
                read.add(latest[producer])
        before = latest.get(op_id)
        if before is not None and before not in read:
            unread.add(before)
        latest[op_id] = position
    outputs = frozenset(graph.outputs)
    n_left = Counter(order)
    for position in unread:
        n_left[order[position]] -= 1
    for op_id, position in latest.items():
        is_output = not outputs.isdisjoint(graph.ops[op_id].outputs)
        if position not in read and not is_output and n_left[op_id] > 1:
            unread.add(position)
    return frozenset(unread)


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
