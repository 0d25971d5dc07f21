"""A training graph as a chain of stages: what runs once, and where recomputes may stand.

Math names of this room: ``n`` ops; the first ``n_forward`` are the forward pass; ``s`` is a stage,
``k`` an op, ``e`` a tensor. `docs/chain-of-stages.md` defines the class of schedules and proves
what the program of this room claims about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from checkmate.costs import Costs
from checkmate.graph import Graph, OpId, TensorId
from checkmate.milp.model import BoolArray


@dataclass(frozen=True, slots=True)
class Stage:
    """Backward ops of which only the last reads forward tensors; recomputes stand before it."""

    first: int
    """The first op of the stage."""
    window: int
    """Where recomputes stand: before this op; from it up to ``last`` follow the forward ops that
    the file has in the backward pass and that this stage is the first to need."""
    last: int
    """The op that reads forward tensors; ``n`` in the last stage, whose end needs the outputs."""


@dataclass(frozen=True, slots=True)
class Chain:
    """A graph whose forward ops of the backward pass were moved to where they are first needed."""

    graph: Graph
    """Its tensors are those of the original graph, its ops are in another order."""
    original: tuple[OpId, ...]
    """Per op: the op of the original graph."""
    n_forward: int
    stages: tuple[Stage, ...]
    is_forward: tuple[bool, ...]
    """Per op: in the forward pass, or moved; what it makes is a forward tensor."""

    def makes_forward(self, e: TensorId) -> bool:
        """Return whether ``e`` is a forward tensor."""
        producer = self.graph.tensors[e].producer
        return producer is not None and self.is_forward[producer]

    def find_forward(self, tensors: Iterable[TensorId]) -> list[TensorId]:
        """Return the forward tensors among ``tensors``."""
        return [e for e in tensors if self.makes_forward(e)]

    def find_last_reads(self, s: int) -> list[TensorId]:
        """Return the forward tensors that the last op of stage ``s`` reads."""
        last = self.stages[s].last
        at_end = last == len(self.graph.ops)
        return self.find_forward(self.graph.outputs if at_end else self.graph.ops[last].inputs)

    def find_parents(self, tensors: Iterable[TensorId]) -> list[OpId]:
        """Return the ops that can make ``tensors`` again, each once."""
        producers = (self.graph.tensors[e].producer for e in self.find_forward(tensors))
        return list(
            dict.fromkeys(p for p in producers if p is not None and self.graph.ops[p].recomputable)
        )

    def restore(self, order: Iterable[OpId]) -> tuple[OpId, ...]:
        """Return ``order`` in ops of the original graph."""
        return tuple(self.original[op] for op in order)

    def translate(self, order: Iterable[OpId]) -> tuple[OpId, ...]:
        """Return an ``order`` of the original graph in ops of this one."""
        place = {old: OpId(new) for new, old in enumerate(self.original)}
        return tuple(place[op] for op in order)


def arrange(graph: Graph) -> Chain | None:
    """Return ``graph``, whose views were folded, as a chain; None: it has no backward ops."""
    n_forward = next((i for i, op in enumerate(graph.ops) if op.backward), None)
    if n_forward is None:
        return None
    movable = _find_movable(graph, n_forward)
    draft = _Draft(graph, n_forward, movable)
    for k in range(n_forward, len(graph.ops)):
        if k not in movable:
            draft.add(OpId(k))
    draft.end_stage(len(graph.ops))
    original = tuple(draft.order)
    is_forward = tuple(old < n_forward or old in movable for old in original)
    return Chain(_reorder(graph, original), original, n_forward, tuple(draft.stages), is_forward)


def arrange_costs(chain: Chain, costs: Costs) -> Costs:
    """Return the costs of the chain's ops, given those of the original graph's."""
    return replace(
        costs,
        time_ns=tuple(costs.time_ns[old] for old in chain.original),
        workspace_nbytes=tuple(costs.workspace_nbytes[old] for old in chain.original),
    )


def _find_movable(graph: Graph, n_forward: int) -> frozenset[OpId]:
    """Return the ops after the first backward one that may run whenever they are needed.

    They may run more than once, depend on forward tensors alone, and serve backward ops only.
    """
    read = {e for op in graph.ops for e in op.inputs}
    fixed: set[TensorId] = set()
    movable: list[OpId] = []
    for k in range(n_forward, len(graph.ops)):
        op = graph.ops[k]
        is_used = any(e in read for e in op.outputs)
        depends = any(e in fixed for e in op.inputs)
        makes_output = any(e in graph.outputs for e in op.outputs)
        if op.backward or depends or makes_output or not op.recomputable or not is_used:
            fixed.update(op.outputs)
        else:
            movable.append(OpId(k))
    return frozenset(movable)


class _Draft:
    """The chain in the making, in ops of the original graph."""

    def __init__(self, graph: Graph, n_forward: int, movable: frozenset[OpId]) -> None:
        self._graph = graph
        self._movable = movable
        self._n_forward = n_forward
        self._placed: set[OpId] = set()
        self.order = [OpId(i) for i in range(n_forward)]
        self.stages: list[Stage] = []
        self._first = n_forward

    def add(self, op: OpId) -> None:
        """Add an op that runs once; when it reads forward tensors, it ends the stage."""
        inputs = self._graph.ops[op].inputs
        if any(self._is_forward(e) for e in inputs):
            window = len(self.order)
            needed = self._find_needed(inputs)
            self.order += needed
            self._placed.update(needed)
            self.order.append(op)
            self.end_stage(len(self.order) - 1, window)
        else:
            self.order.append(op)

    def end_stage(self, last: int, window: int | None = None) -> None:
        """End the stage with the op at position ``last``."""
        self.stages.append(Stage(self._first, last if window is None else window, last))
        self._first = last + 1

    def _is_forward(self, e: TensorId) -> bool:
        producer = self._graph.tensors[e].producer
        return producer is not None and (producer < self._n_forward or producer in self._movable)

    def _find_needed(self, tensors: Iterable[TensorId]) -> list[OpId]:
        """Return the movable ops that make ``tensors`` and were not placed yet, ascending."""
        found: set[OpId] = set()
        pending = list(tensors)
        while pending:
            producer = self._graph.tensors[pending.pop()].producer
            is_new = producer in self._movable and producer not in self._placed
            if producer is not None and is_new and producer not in found:
                found.add(producer)
                pending += self._graph.ops[producer].inputs
        return sorted(found)


def _reorder(graph: Graph, original: Sequence[OpId]) -> Graph:
    place = {old: OpId(new) for new, old in enumerate(original)}
    tensors = (
        tensor if tensor.producer is None else replace(tensor, producer=place[tensor.producer])
        for tensor in graph.tensors
    )
    return replace(graph, ops=tuple(graph.ops[old] for old in original), tensors=tuple(tensors))


def is_chain_of_stages(graph: Graph, order: Sequence[OpId]) -> bool:
    """Return whether ``order``, of ops of ``graph``, is in the class; False without backward ops.

    The order must be one that can run.
    """
    chain = arrange(graph)
    return chain is not None and split_windows(chain, chain.translate(order)) is not None


def split_windows(chain: Chain, order: Sequence[OpId]) -> list[list[OpId]] | None:
    """Return the forward ops that run before the last op of each stage, ascending.

    ``order`` is of the chain's ops. None: it is not in the class.
    """
    if list(order[: chain.n_forward]) != list(range(chain.n_forward)):
        return None
    reachable = find_reachable(chain)
    windows: list[list[OpId]] = []
    at = chain.n_forward
    for s, stage in enumerate(chain.stages):
        begin = at + stage.window - stage.first
        end = begin
        while end < len(order) and chain.is_forward[order[end]]:
            end += 1
        window = list(order[begin:end])
        fixed = [*range(stage.first, stage.window), *_list_last(chain, s)]
        ran = [*order[at:begin], *order[end : end + 1]]
        if ran != fixed or not _ascends(window) or not reachable[s, window].all():
            return None
        windows.append(window)
        at = end + 1
    return windows


def _list_last(chain: Chain, s: int) -> list[int]:
    last = chain.stages[s].last
    return [last] if last < len(chain.graph.ops) else []


def _ascends(window: Sequence[OpId]) -> bool:
    return all(a < b for a, b in pairwise(window))


def find_reachable(chain: Chain) -> BoolArray:
    """Return, per stage and op, whether the op may run before the last op of the stage.

    It may when the last op descends from it through forward ops that may run again.
    """
    graph, n = chain.graph, len(chain.graph.ops)
    above = np.zeros((n, n), dtype=np.bool_)
    for k in range(n):
        if chain.is_forward[k]:
            _reach(above[k], above, chain.find_parents(graph.ops[k].inputs))
    reachable = np.zeros((len(chain.stages), n), dtype=np.bool_)
    for s in range(len(chain.stages)):
        _reach(reachable[s], above, chain.find_parents(chain.find_last_reads(s)))
    return reachable


def _reach(row: BoolArray, above: BoolArray, parents: Sequence[OpId]) -> None:
    for parent in parents:
        row |= above[parent]
    row[parents] = True
