"""What the rows are made from: the columns, and sizes in the unit of the memory rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from checkmate.graph import Graph, OpId, TensorId
from checkmate.milp.columns import Columns, make_columns
from checkmate.problem import Problem

MAX_UNITS = 2**20
"""Sizes are exact when the budget is at most this many times their greatest common divisor."""
MAX_COEFFICIENT = 2**13
"""Coefficients of memory rows are at most this; HiGHS gives wrong answers to bytes as such."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A problem as the rows see it.

    Sizes are whole multiples of a unit, rounded down, and so is the budget: what fits in bytes
    fits in units too, so that a bound or an infeasibility of the program holds for the problem.
    When the unit divides all sizes, nothing was rounded, and the reverse holds as well.
    """

    graph: Graph
    columns: Columns
    sizes: tuple[float, ...]
    """Per tensor, in units times a power of two."""
    transient: tuple[float, ...]
    """Per op: what is in memory only while it runs: its workspace, its outputs that nothing
    needs, rounded down each."""
    room: float
    """The budget less the resident tensors."""


Memory = tuple[tuple[TensorId, int], ...]
"""Tensors and the columns that say that they are in memory."""


def make_frame(problem: Problem, budget_nbytes: int) -> Frame:
    """Return the frame of ``problem`` for a budget that the resident tensors do not exceed."""
    graph, workspaces = problem.graph, problem.costs.workspace_nbytes
    room_nbytes = budget_nbytes - graph.resident_nbytes
    made = [tensor.nbytes for tensor in graph.tensors if tensor.producer is not None]
    unit_nbytes = choose_unit(math.gcd(*made, *workspaces), room_nbytes)
    scale = choose_power(room_nbytes // unit_nbytes)
    columns = make_columns(graph)
    sizes = tuple(tensor.nbytes // unit_nbytes * scale for tensor in graph.tensors)
    transient = tuple(
        workspaces[k] // unit_nbytes * scale
        + sum(sizes[e] for e in op.outputs if not columns.need[k, e])
        for k, op in enumerate(graph.ops)
    )
    return Frame(graph, columns, sizes, transient, room_nbytes // unit_nbytes * scale)


def choose_unit(divisor_nbytes: int, room_nbytes: int, max_units: int = MAX_UNITS) -> int:
    """Return the divisor, times two until ``room_nbytes`` is at most ``max_units`` of it."""
    unit_nbytes = max(divisor_nbytes, 1)
    while room_nbytes // unit_nbytes > max_units:
        unit_nbytes *= 2
    return unit_nbytes


def choose_power(n_units: int) -> float:
    """Return the power of two, at most 1, that brings ``n_units`` down to `MAX_COEFFICIENT`."""
    return min(1.0, 2.0 ** (MAX_COEFFICIENT.bit_length() - 1 - n_units.bit_length()))


def walk_memory(graph: Graph, columns: Columns, t: int) -> Iterator[tuple[OpId, Memory]]:
    """Yield each op that may run in stage ``t``, and what is in memory when it does.

    A tensor is in memory up to its producer's place in the stage when it was retained, and after
    that as long as it is needed. While its producer runs it is in memory whatever its need; a
    tensor that neither is needed then nor was retained is left to `Frame.transient`.
    """
    live: dict[TensorId, int] = {
        TensorId(e): columns.retain[t, e]
        for e in range(len(graph.tensors))
        if (t, e) in columns.retain
    }
    for k in columns.runs_of_stage(t):
        op = graph.ops[k]
        made = ((e, columns.run[t, k]) for e in op.outputs if columns.need[k, e])
        yield k, (*live.items(), *made)
        for e in (*op.inputs, *op.outputs):
            column = columns.find_need(t, e, k)
            live.pop(e, None)
            if column is not None:
                live[e] = column
