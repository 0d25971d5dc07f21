"""The columns of the program: what a schedule decides.

Math names of this room: ``n`` ops in graph order; stage ``t`` ends with the first run of op ``t``;
``i``, ``j``, ``k`` are ops and ``e`` is a tensor that some op makes.

- ``run[t, i]``: op ``i`` runs in stage ``t``, ``i <= t`` (the paper's R).
- ``retain[t, e]``: ``e`` is in memory when stage ``t`` begins (the paper's S); stage ``n`` is the
  end of the run.
- ``need[t, e]``: pairs of an op ``k`` and a column that is 1 when ``e`` is still needed by ``k``
  or after it: by a later reader in stage ``t``, or by the next stage. Where another column
  already says so, it is that column. These stand for the paper's FREE: a tensor leaves memory
  where its need drops from 1 to 0.

A column that can only be 0 in a best schedule does not exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from checkmate.graph import Graph, OpId, TensorId, find_readers
from checkmate.milp.model import BoolArray, FloatArray
from checkmate.milp.reach import Reach, find_reach

Need = tuple[tuple[OpId, int], ...]
"""Per reader that may run in the stage, ascending: the column of being needed from it on. The
last pair has op ``n`` and the column of being retained into the next stage, if that exists."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Where each decision is among the columns."""

    run: Mapping[tuple[int, int], int]
    """By stage and op, stage by stage in ascending order."""
    retain: Mapping[tuple[int, int], int]
    """By stage and tensor."""
    need: Mapping[tuple[int, int], Need]
    """By stage and tensor."""
    lower: FloatArray
    upper: FloatArray
    is_integer: BoolArray

    def runs_of_stage(self, t: int) -> list[OpId]:
        """Return the ops that may run in stage ``t``, ascending."""
        return [OpId(i) for i in range(t + 1) if (t, i) in self.run]

    def find_need(self, t: int, e: TensorId, k: OpId) -> int | None:
        """Return the column that says that ``e`` is needed after ``k`` in stage ``t``, if any."""
        later = (column for reader, column in self.need.get((t, e), ()) if reader > k)
        return next(later, None)


def make_columns(graph: Graph) -> Columns:
    """Return the columns of the schedules of ``graph``."""
    draft = _Draft()
    reach, readers = find_reach(graph), find_readers(graph)
    run = {(t, i): draft.add(forced=t == i) for t, i in _find_runs(graph, reach)}
    retain = {
        (t, e): draft.add(forced=t <= reach.forced[e] or t == len(graph.ops))
        for t, e in _find_retains(graph, reach)
    }
    need: dict[tuple[int, int], Need] = {}
    for t, e in _find_needs(graph):
        runs = [(j, run[t, j]) for j in readers[e] if (t, j) in run]
        end = ((OpId(len(graph.ops)), retain[t + 1, e]),) if (t + 1, e) in retain else ()
        need[t, e] = draft.add_need(t, runs, end)
    is_integer = np.zeros(len(draft.lower), dtype=np.bool_)
    is_integer[: len(run) + len(retain)] = True
    lower = np.array(draft.lower, dtype=np.float64)
    return Columns(run, retain, need, lower, np.ones(len(lower)), is_integer)


class _Draft:
    """Columns in the making; each is from its lower bound to 1."""

    def __init__(self) -> None:
        self.lower: list[float] = []

    def add(self, *, forced: bool) -> int:
        self.lower.append(float(forced))
        return len(self.lower) - 1

    def add_need(self, t: int, runs: Sequence[tuple[OpId, int]], end: Need) -> Need:
        """Return the need of a tensor in stage ``t``, where ``runs`` are its readers' columns.

        A tensor that op ``t`` reads is needed up to ``t``, always.
        """
        if runs and runs[-1][0] == t:
            return (*((k, runs[-1][1]) for k, _ in runs), *end)
        need = end
        for k, column in reversed(runs):
            need = ((k, self.add(forced=False) if need else column), *need)
        return need


def _find_runs(graph: Graph, reach: Reach) -> Iterator[tuple[int, int]]:
    for t in range(len(graph.ops)):
        for i in range(t):
            if graph.ops[i].recomputable and t <= reach.of_op[i]:
                yield t, i
        yield t, t


def _find_retains(graph: Graph, reach: Reach) -> Iterator[tuple[int, int]]:
    """Find the stages into which a tensor may be retained; the end only for graph outputs."""
    n = len(graph.ops)
    for e, tensor in enumerate(graph.tensors):
        if tensor.producer is not None:
            last = n if e in graph.outputs else min(reach.of_tensor[e], n - 1)
            for t in range(tensor.producer + 1, last + 1):
                yield t, e


def _find_needs(graph: Graph) -> Iterator[tuple[int, TensorId]]:
    for e, tensor in enumerate(graph.tensors):
        if tensor.producer is not None:
            for t in range(tensor.producer, len(graph.ops)):
                yield t, TensorId(e)
