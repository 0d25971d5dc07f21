"""The rows of the program that bounds all frontier-advancing schedules, one function a family.

`docs/frontier-bound.md` proves that each such schedule keeps them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from checkmate.graph import Graph, OpId, TensorId
from checkmate.milp.frame import choose_power, choose_unit
from checkmate.milp.model import Rows
from checkmate.milp.wide_columns import ONE, Columns, Stretch, make_columns
from checkmate.milp.wide_near import find_uses
from checkmate.problem import Problem


@dataclass(frozen=True, slots=True)
class Frame:
    """A problem as the rows see it. Sizes are rounded down to units, and so is the room."""

    problem: Problem
    columns: Columns
    budget_nbytes: int
    unit_nbytes: int
    power: float

    @property
    def graph(self) -> Graph:
        """The graph of the problem."""
        return self.problem.graph

    def convert(self, nbytes: int) -> float:
        """Return ``nbytes`` in units times a power of two."""
        return nbytes // self.unit_nbytes * self.power


Family = Callable[[Frame, Rows], None]


def make_frame(problem: Problem, budget_nbytes: int, depth: int) -> Frame:
    """Return the frame of the folded ``problem``, with recomputes near up to ``depth``."""
    room_nbytes = budget_nbytes - problem.graph.resident_nbytes
    made = (tensor.nbytes for tensor in problem.graph.tensors if tensor.producer is not None)
    unit_nbytes = choose_unit(math.gcd(*made), room_nbytes)
    power = choose_power(room_nbytes // unit_nbytes)
    return Frame(problem, make_columns(problem.graph, depth), budget_nbytes, unit_nbytes, power)


def add_run_rows(frame: Frame, rows: Rows) -> None:
    """Require a near recompute to have its inputs: retained, or made in the stage."""
    for (t, k), run in frame.columns.run.items():
        for e in _find_made(frame, frame.graph.ops[k].inputs):
            rows.add_at_most(run, _find_sources(frame, t, e))


def add_read_rows(frame: Frame, rows: Rows) -> None:
    """Require the op of a stage to have its inputs."""
    for t in range(len(frame.graph.ops)):
        for e in find_uses(frame.graph, t):
            if frame.columns.state[t, e] != ONE:
                rows.add_at_most(ONE, _find_sources(frame, t, e))


def add_retention_rows(frame: Frame, rows: Rows) -> None:
    """Require a tensor in memory after a touch to have been there before, or made in between."""
    state = frame.columns.state
    for e, touches in enumerate(frame.columns.touches):
        for t in touches:
            after = state.get((t + 1, e), ONE)
            if after != ONE:
                rows.add_at_most(after, _find_sources(frame, t, TensorId(e)))


def add_stretch_rows(frame: Frame, rows: Rows) -> None:
    """Require a tensor that comes back between touches to be made deep."""
    for one in frame.columns.stretches:
        if one.least not in (one.begin, ONE):
            rows.add_at_most(one.least, [one.begin])
        maker = _find_maker(frame, one.e)
        if frame.graph.ops[maker].recomputable:
            rows.add_at_most(one.end, [one.least, frame.columns.find_return(maker, one.first)])


def add_memory_rows(frame: Frame, rows: Rows) -> None:
    """Require what is in memory while the op of a stage runs to fit in the budget."""
    counted: list[list[tuple[int, float]]] = [[] for _ in frame.graph.ops]
    for t, e, column in _find_waiting(frame):
        counted[t].append((column, frame.convert(frame.graph.tensors[e].nbytes)))
    for t, terms in enumerate(counted):
        room = frame.convert(frame.budget_nbytes - _find_fixed_nbytes(frame, t))
        if sum(size for _, size in terms) > room:
            rows.add(terms, room)


def add_again_rows(frame: Frame, rows: Rows) -> None:
    """Require a recompute of an op to say that the op is recomputed, and the reverse."""
    columns = frame.columns
    ways: dict[int, list[int]] = {
        op: [one.column for one in returns] for op, returns in columns.returns.items()
    }
    for (_, k), run in columns.run.items():
        ways[k].append(run)
    for op, again in columns.again.items():
        rows.add_at_most(again, ways[op])
        for column in ways[op]:
            rows.add_at_most(column, [again])


def add_closure_rows(frame: Frame, rows: Rows) -> None:
    """Require what a recomputed op reads to be kept from its first make, or recomputed too."""
    for k, again in frame.columns.again.items():
        for e in _find_made(frame, frame.graph.ops[k].inputs):
            start = frame.columns.state[k + 1, e]
            if start != ONE:
                rows.add_at_most(again, [start, *_find_again(frame, e)])


def add_lasting_rows(frame: Frame, rows: Rows) -> None:
    """Require a tensor to be there from its first make to its last use, or to be made again."""
    columns = frame.columns
    starts = [(e, t, column) for (t, e), column in columns.state.items()]
    starts += [(one.e, one.last, one.least) for one in columns.stretches]
    lasting = {(e, column): None for e, t, column in starts if t <= columns.needed[e]}
    for e, column in lasting:
        if column != ONE:
            rows.add_at_most(ONE, [column, *_find_again(frame, TensorId(e))])


def add_dependency_rows(frame: Frame, rows: Rows) -> None:
    """Require a deep recompute to have its inputs, in some stage of its range."""
    finder = _OriginFinder(frame)
    for k, returns in frame.columns.returns.items():
        for one in returns[:-1]:
            for e in _find_made(frame, frame.graph.ops[k].inputs):
                origins = finder.find(e, one.low, one.high)
                if ONE not in origins:
                    rows.add_at_most(one.column, origins)


FAMILIES: Mapping[str, Family] = {
    "run": add_run_rows,
    "read": add_read_rows,
    "retention": add_retention_rows,
    "stretch": add_stretch_rows,
    "memory": add_memory_rows,
    "again": add_again_rows,
    "closure": add_closure_rows,
    "lasting": add_lasting_rows,
    "dependency": add_dependency_rows,
}


def _find_waiting(frame: Frame) -> Iterator[tuple[int, int, int]]:
    """Yield stages, tensors that are in memory during its op though unused by it, and columns."""
    columns = frame.columns
    for e, touches in enumerate(columns.touches):
        for t in touches:
            if (t + 1, e) in columns.state and e not in find_uses(frame.graph, t):
                yield t, e, columns.state[t + 1, e]
    for one in columns.stretches:
        for t in range(one.first, one.last - 1):
            yield t, one.e, one.begin if t < one.held else one.least
        yield one.last - 1, one.e, one.end


def _find_fixed_nbytes(frame: Frame, t: int) -> int:
    """Return what is in memory while the op of stage ``t`` runs for the first time, at least."""
    graph = frame.graph
    used = (*find_uses(graph, t), *graph.ops[t].outputs)
    nbytes = sum(graph.tensors[e].nbytes for e in used)
    return graph.resident_nbytes + nbytes + frame.problem.costs.workspace_nbytes[t]


def _find_made(frame: Frame, tensors: tuple[TensorId, ...]) -> list[TensorId]:
    return [e for e in tensors if frame.graph.tensors[e].producer is not None]


def _find_maker(frame: Frame, e: TensorId) -> OpId:
    producer = frame.graph.tensors[e].producer
    assert producer is not None
    return producer


def _find_again(frame: Frame, e: TensorId) -> list[int]:
    maker = _find_maker(frame, e)
    return [frame.columns.again[maker]] if maker in frame.columns.again else []


def _find_sources(frame: Frame, t: int, e: TensorId) -> list[int]:
    """Return the columns of ``e`` being retained into stage ``t``, a touch, and of being made."""
    columns, maker = frame.columns, _find_maker(frame, e)
    start = columns.state[t, e]
    if (t, maker) in columns.run:
        return [start, columns.run[t, maker]]
    return [start, columns.find_return(maker, t)] if maker in columns.returns else [start]


class _OriginFinder:
    """Finds the columns of which one is 1 when a tensor is in memory in some stage of a range."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._stretches: dict[TensorId, list[Stretch]] = {}
        for one in frame.columns.stretches:
            self._stretches.setdefault(one.e, []).append(one)
        self._runs: dict[int, list[tuple[int, int]]] = {}
        for (t, k), column in frame.columns.run.items():
            self._runs.setdefault(k, []).append((t, column))

    def find(self, e: TensorId, low: int, high: int) -> list[int]:
        """Return the columns for the stages from ``low`` to ``high``, after the first make."""
        maker = _find_maker(self._frame, e)
        start, since = self._find_start(e, low)
        if maker not in self._frame.columns.returns:
            return [start]
        runs = [column for t, column in self._runs.get(maker, ()) if low <= t <= high]
        returns = self._frame.columns.returns[maker]
        deep = [one.column for one in returns if one.low <= high and one.high >= since]
        return list(dict.fromkeys((start, *runs, *deep)))

    def _find_start(self, e: TensorId, t: int) -> tuple[int, int]:
        """Return the last column before stage ``t`` of ``e`` being in memory, and its stage."""
        state = self._frame.columns.state
        if (t, e) in state:
            return state[t, e], t
        for one in self._stretches.get(e, ()):
            if one.first <= t < one.last:
                return one.begin, one.first
        last = self._frame.columns.touches[e][-1] + 1
        return state[last, e], last
