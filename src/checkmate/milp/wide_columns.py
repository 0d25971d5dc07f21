"""The columns of the program that bounds all frontier-advancing schedules.

- ``run[t, k]``: ``k`` is recomputed in stage ``t``; for near recomputes.
- ``state[t, e]``: ``e`` is in memory when stage ``t`` begins; for the stages that touch it, those
  after them, and the first after its first make.
- between two touches, where only deep recomputes read or make ``e``: a `Stretch`.
- ``again[k]``: ``k`` is recomputed at all.
- ``returns[k]``: columns of deep recomputes of ``k``, one for each group of overlapping ranges of
  stages in which an output of ``k`` may be made deep, the last one for all other stages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from checkmate.graph import Graph, OpId, TensorId, find_readers
from checkmate.milp.wide_near import find_near, find_touches, find_uses

ONE = 0
"""The column that is 1."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A tensor in the stages from ``first`` to ``last - 1``, which do not touch it."""

    e: TensorId
    first: int
    last: int
    begin: int
    """The column of being in memory when stage ``first`` begins."""
    end: int
    """The column of being in memory when stage ``last`` begins."""
    least: int
    """The column of being in memory whenever one of these stages, or ``last``, begins."""
    held: int
    """Where ``begin`` is 1, the tensor is in memory up to the beginning of this stage."""


@dataclass(frozen=True, slots=True)
class Return:
    """Deep recomputes of an op in some range of stages."""

    column: int
    low: int
    high: int
    """The last stage of the range."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Where each decision is among the columns."""

    n_cols: int
    run: Mapping[tuple[int, OpId], int]
    state: Mapping[tuple[int, int], int]
    stretches: tuple[Stretch, ...]
    again: Mapping[int, int]
    returns: Mapping[int, tuple[Return, ...]]
    near: tuple[tuple[OpId, ...], ...]
    """Per stage."""
    touches: tuple[tuple[int, ...], ...]
    """Per tensor."""
    needed: tuple[int, ...]
    """Per tensor: the last stage whose own op uses it; -1 where none does, or it is resident."""

    def find_return(self, k: OpId, t: int) -> int:
        """Return the column of a deep recompute of ``k`` in stage ``t``."""
        found = (one.column for one in self.returns[k] if one.low <= t <= one.high)
        return next(found)


def make_columns(graph: Graph, depth: int) -> Columns:
    """Return the columns of the schedules of ``graph``, with recomputes near up to ``depth``."""
    near = find_near(graph, depth)
    touches = find_touches(graph, near)
    draft = _Draft(graph, touches, _find_needed(graph))
    run = {(t, k): draft.add() for t, again in enumerate(near) for k in again}
    for e in range(len(graph.tensors)):
        draft.add_tensor(TensorId(e))
    again = {k: draft.add() for k, op in enumerate(graph.ops[:-1]) if op.recomputable}
    returns = {k: draft.add_returns(OpId(k), run) for k in again}
    return Columns(
        draft.n_cols, run, draft.state, tuple(draft.stretches), again, returns, near,
        tuple(map(tuple, touches)), draft.needed,
    )  # fmt: skip


def _find_needed(graph: Graph) -> tuple[int, ...]:
    needed = [-1] * len(graph.tensors)
    for t in range(len(graph.ops)):
        for e in find_uses(graph, t):
            needed[e] = t
    return tuple(needed)


class _Draft:
    """Columns in the making."""

    def __init__(self, graph: Graph, touches: list[list[int]], needed: tuple[int, ...]) -> None:
        self._graph = graph
        self._touches = touches
        self._readers = find_readers(graph)
        self.needed = needed
        self.n_cols = ONE + 1
        self.state: dict[tuple[int, int], int] = {}
        self.stretches: list[Stretch] = []

    def add(self) -> int:
        self.n_cols += 1
        return self.n_cols - 1

    def add_tensor(self, e: TensorId) -> None:
        """Add the columns of ``e`` from its first make to the stage after its last touch."""
        before = self._graph.tensors[e].producer
        if before is None or not self._touches[e]:
            return
        for touch in self._touches[e]:
            self._add_start(before + 1, e)
            if touch > before + 1:
                self._add_start(touch, e)
                self.stretches.append(self._make_stretch(e, before + 1, touch))
            before = OpId(touch)
        if before + 1 < len(self._graph.ops):
            self._add_start(before + 1, e)

    def add_returns(self, k: OpId, run: Mapping[tuple[int, OpId], int]) -> tuple[Return, ...]:
        """Return the deep recomputes of ``k``."""
        found: list[Return] = []
        for low, high in sorted(self._find_deep_ranges(k, run)):
            if found and low <= found[-1].high:
                last = found.pop()
                found.append(Return(last.column, last.low, max(last.high, high)))
            else:
                found.append(Return(self.add(), low, high))
        return (*found, Return(self.add(), 0, len(self._graph.ops)))

    def _add_start(self, t: int, e: TensorId) -> None:
        if (t, e) not in self.state:
            self.state[t, e] = ONE if self._is_forced(t, e) else self.add()

    def _is_forced(self, t: int, e: TensorId) -> bool:
        return not self._is_recomputable(e) and t <= self.needed[e]

    def _is_recomputable(self, e: TensorId) -> bool:
        producer = self._graph.tensors[e].producer
        return producer is not None and self._graph.ops[producer].recomputable

    def _make_stretch(self, e: TensorId, first: int, last: int) -> Stretch:
        begin, end = self.state[first, e], self.state[last, e]
        if not self._is_recomputable(e):
            # Once gone, it does not come back, so that the end is the least.
            return Stretch(e, first, last, begin, end, end, first)
        readers = [q for q in self._readers[e] if self._graph.ops[q].recomputable]
        held = min(max(min(readers, default=last) + 1, first), last)
        least = begin if held == last else self.add()
        return Stretch(e, first, last, begin, end, least, held)

    def _find_deep_ranges(
        self, k: OpId, run: Mapping[tuple[int, OpId], int]
    ) -> Iterator[tuple[int, int]]:
        """Find the stages in which a make of ``k`` may be behind a tensor's coming back."""
        outputs = frozenset(self._graph.ops[k].outputs)
        for stretch in self.stretches:
            if stretch.e in outputs:
                yield stretch.first, stretch.last - 1
        for e in sorted(outputs):
            for touch in self._touches[e]:
                if (touch, k) not in run:
                    yield touch, touch
