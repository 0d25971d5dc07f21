"""A training graph as a chain of stages: what runs once, and where recomputes may stand.

Math names of this room: ``n`` ops; the first ``n_forward`` are the forward pass; ``s`` is a stage,
``k`` an op, ``e`` a tensor. `docs/chain-of-stages.md` defines the class of schedules and proves
what the program of this room claims about it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from checkmate.graph import Graph, OpId, TensorId
from checkmate.milp.model import BoolArray


@dataclass(frozen=True, slots=True)
class Stage:
    """Ops of the backward pass of which only the last reads or makes forward tensors."""

    first: int
    last: int
    """Recomputes stand just before it."""


@dataclass(frozen=True, slots=True)
class Chain:
    """A graph, its stages, and which of its ops may be recomputed in them."""

    graph: Graph
    n_forward: int
    stages: tuple[Stage, ...]
    is_forward: tuple[bool, ...]
    """Per op: what it makes are forward tensors. True in the forward pass, and after it for what
    depends on forward tensors alone, may run more than once and serves backward ops only."""
    births: tuple[int, ...]
    """Per op: the first stage that begins after it first ran."""

    def makes_forward(self, e: TensorId) -> bool:
        """Return whether ``e`` is a forward tensor."""
        producer = self.graph.tensors[e].producer
        return producer is not None and self.is_forward[producer]

    def find_forward(self, tensors: Iterable[TensorId]) -> list[TensorId]:
        """Return the forward tensors among ``tensors``."""
        return [e for e in tensors if self.makes_forward(e)]

    def find_last_reads(self, s: int) -> list[TensorId]:
        """Return the forward tensors that the last op of stage ``s`` reads.

        For the last op of all, graph outputs count as read.
        """
        last = self.stages[s].last
        at_end = last == len(self.graph.ops) - 1
        read = (*self.graph.ops[last].inputs, *(self.graph.outputs if at_end else ()))
        return self.find_forward(dict.fromkeys(read))

    def find_last_makes(self, s: int) -> tuple[TensorId, ...]:
        """Return the forward tensors that the last op of stage ``s`` makes."""
        last = self.stages[s].last
        return self.graph.ops[last].outputs if self.is_forward[last] else ()

    def find_parents(self, tensors: Iterable[TensorId]) -> list[OpId]:
        """Return the ops that can make ``tensors`` again, each once."""
        producers = (self.graph.tensors[e].producer for e in self.find_forward(tensors))
        return list(
            dict.fromkeys(p for p in producers if p is not None and self.graph.ops[p].recomputable)
        )


def arrange(graph: Graph) -> Chain | None:
    """Return ``graph``, whose views were folded, as a chain; None: it has no backward ops."""
    n, n_forward = len(graph.ops), next((k for k, op in enumerate(graph.ops) if op.backward), None)
    if n_forward is None:
        return None
    late = _find_late(graph, n_forward)
    is_forward = tuple(k < n_forward or OpId(k) in late for k in range(n))
    forward = {e for k, op in enumerate(graph.ops) if is_forward[k] for e in op.outputs}
    touched = [forward.intersection((*op.inputs, *op.outputs)) for op in graph.ops]
    lasts = [k for k in range(n_forward, n) if touched[k] or k == n - 1]
    firsts = [n_forward, *(last + 1 for last in lasts[:-1])]
    stages = tuple(Stage(*ends) for ends in zip(firsts, lasts, strict=True))
    births = tuple(bisect_right(lasts, k) for k in range(n))
    return Chain(graph, n_forward, stages, is_forward, births)


def _find_late(graph: Graph, n_forward: int) -> frozenset[OpId]:
    """Return the ops after the first backward one whose outputs are forward tensors."""
    read = {e for op in graph.ops for e in op.inputs}
    others: set[TensorId] = set()
    late: list[OpId] = []
    for k in range(n_forward, len(graph.ops)):
        op = graph.ops[k]
        serves = any(e in read for e in op.outputs) and not any(
            e in graph.outputs for e in op.outputs
        )
        if op.backward or not op.recomputable or not serves or not others.isdisjoint(op.inputs):
            others.update(op.outputs)
        else:
            late.append(OpId(k))
    return frozenset(late)


def is_chain_of_stages(graph: Graph, order: Sequence[OpId]) -> bool:
    """Return whether ``order``, which can run, is in the class; False without backward ops."""
    chain = arrange(graph)
    return chain is not None and split_windows(chain, order) is not None


def split_windows(chain: Chain, order: Sequence[OpId]) -> list[list[OpId]] | None:
    """Return what is recomputed before the last op of each stage, ascending.

    None: ``order``, which can run, is not in the class.
    """
    places = {op: place for place, op in reversed(tuple(enumerate(order)))}
    starts_forward = list(order[: chain.n_forward]) == list(range(chain.n_forward))
    if len(places) < len(chain.graph.ops) or not starts_forward:
        return None
    reachable = find_reachable(chain)
    windows: list[list[OpId]] = []
    at = chain.n_forward
    for s, stage in enumerate(chain.stages):
        begin = at + stage.last - stage.first
        end = places[OpId(stage.last)]
        window = list(order[begin:end])
        is_in_order = list(order[at:begin]) == list(range(stage.first, stage.last))
        if not is_in_order or not _ascends(window) or not reachable[s, window].all():
            return None
        windows.append(window)
        at = end + 1
    return windows if at == len(order) else None


def _ascends(window: Sequence[OpId]) -> bool:
    return all(a < b for a, b in pairwise(window))


def find_reachable(chain: Chain) -> BoolArray:
    """Return, per stage and op, whether the op may be recomputed before the last op of the stage.

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
