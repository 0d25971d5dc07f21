"""Rows that forbid what the rounding of sizes let through.

Sizes in the program are rounded down, and the solver has tolerances, so an order that it returns
may be a little above the budget. Then some op had tensors in memory that together do not fit,
counted in bytes; in no schedule that fits are they all in memory when that op runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from checkmate.graph import OpId
from checkmate.milp.encode import encode
from checkmate.milp.frame import Frame, Memory, walk_memory
from checkmate.milp.model import FloatArray, Rows
from checkmate.problem import Problem

Cover = tuple[int, ...]
"""Columns that are not all 1 in any schedule that fits."""


def find_covers(
    problem: Problem, frame: Frame, budget_nbytes: int, order: Sequence[OpId]
) -> tuple[Cover, ...]:
    """Return what is wrong with a frontier-advancing ``order``: nothing, when it fits."""
    values = encode(problem.graph, frame.columns, order)
    found = []
    for t in range(len(problem.graph.ops)):
        for k, memory in walk_memory(problem.graph, frame.columns, t):
            run = frame.columns.run[t, k]
            if values[run]:
                room_nbytes = budget_nbytes - _fixed_nbytes(problem, frame, k)
                cover = _find_cover(problem, values, memory, room_nbytes)
                found += [tuple(dict.fromkeys((*cover, run)))] if cover is not None else []
    return tuple(found)


def add_cover_rows(_frame: Frame, rows: Rows, covers: Sequence[Cover]) -> None:
    """Forbid the columns of each cover to be 1 together."""
    for cover in covers:
        rows.add([(column, 1.0) for column in cover], len(cover) - 1.0)


def _fixed_nbytes(problem: Problem, frame: Frame, k: OpId) -> int:
    """Return what op ``k`` needs beside the tensors that columns speak of."""
    graph = problem.graph
    unread = (e for e in graph.ops[k].outputs if not frame.columns.need[k, e])
    own_nbytes = sum(graph.tensors[e].nbytes for e in unread)
    return graph.resident_nbytes + problem.costs.workspace_nbytes[k] + own_nbytes


def _find_cover(
    problem: Problem, values: FloatArray, memory: Memory, room_nbytes: int
) -> Cover | None:
    """Return columns of the largest tensors that exceed the room; None: all fit."""
    sizes = problem.graph.tensors
    live = [(sizes[e].nbytes, column) for e, column in memory if values[column]]
    if sum(nbytes for nbytes, _ in live) <= room_nbytes:
        return None
    return tuple(_take_until(sorted(live, key=lambda pair: -pair[0]), room_nbytes))


def _take_until(live: Sequence[tuple[int, int]], room_nbytes: int) -> Iterator[int]:
    used_nbytes = 0
    for nbytes, column in live:
        if used_nbytes > room_nbytes:
            return
        used_nbytes += nbytes
        yield column
