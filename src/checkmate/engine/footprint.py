"""Where the memory of a graph goes when nothing is recomputed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from checkmate.engine.solve import run_baseline
from checkmate.folding import fold_views
from checkmate.graph import Graph, OpId, TensorId, find_readers
from checkmate.heuristics.greedy import find_smallest_budget
from checkmate.problem import Problem
from checkmate.search.bound import smallest_conceivable_nbytes
from checkmate.simulate import Peak

Kind = Literal["activation", "gradient", "output"]
"""What a tensor that an op makes is: what a forward op makes, what a backward op makes, or what
is handed to the caller, whichever made it."""

_EFFORTS = ((1000, 4), (2000, 1))
"""Up to how many ops how many policies look for the smallest budget: what takes about a second."""


@dataclass(frozen=True, slots=True)
class Life:
    """The storage of one tensor over the run in graph order, and that of its views."""

    tensor: TensorId
    kind: Kind
    made: OpId
    uses: tuple[OpId, ...]
    """The ops that read it, or a view of it, in graph order; those that make views among them."""
    end: int
    """The position of the op after which it leaves memory; the number of ops: it stays."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """The memory of a graph that runs each op once, in graph order."""

    peak: Peak
    at_peak: tuple[Life, ...]
    """What is in memory at the peak beside resident tensors, largest first."""
    saved: tuple[Life, ...]
    """What is in memory when the backward pass begins and is read from then on, largest first."""
    bound_nbytes: int
    """No schedule of this op order fits in less."""
    bound_op: OpId | None
    """The op that alone needs as much; None: the resident tensors do."""
    smallest_nbytes: int | None
    """The smallest budget for which the greedy found a schedule; None: it was not asked."""

    def count_nbytes(self, graph: Graph, kind: Kind) -> int:
        """Return the bytes of one kind at the peak."""
        return sum(graph.tensors[life.tensor].nbytes for life in self.at_peak if life.kind == kind)


def find_footprint(problem: Problem) -> Footprint:
    """Return where the memory of ``problem`` goes without recompute."""
    graph = problem.graph
    lives = find_lives(graph)
    peak = run_baseline(problem).peak
    at_peak = () if peak.op is None else _find_live(lives, peak.op)
    assert sum(graph.tensors[life.tensor].nbytes for life in at_peak) == peak.live_nbytes
    bound_nbytes, bound_op = smallest_conceivable_nbytes(problem)
    return Footprint(
        peak,
        _sort_by_size(graph, at_peak),
        _sort_by_size(graph, _find_saved(graph, lives)),
        bound_nbytes,
        bound_op,
        _find_smallest(problem),
    )


def find_lives(graph: Graph) -> tuple[Life, ...]:
    """Return the lives of all storage that ops make, in graph order."""
    readers, outputs = find_readers(graph), frozenset(graph.outputs)
    holders: dict[TensorId, list[TensorId]] = {}
    owners: dict[TensorId, TensorId] = {}
    for index, tensor in enumerate(graph.tensors):
        if tensor.producer is not None:
            source = tensor.source
            owner = TensorId(index) if source is None else owners.get(source)
            if owner is not None:
                owners[TensorId(index)] = owner
                holders.setdefault(owner, []).append(TensorId(index))
    return tuple(_find_life(graph, held, readers, outputs) for held in holders.values())


def _find_life(
    graph: Graph,
    holders: Sequence[TensorId],
    readers: Sequence[Sequence[OpId]],
    outputs: frozenset[TensorId],
) -> Life:
    """Return the life of the storage that ``holders`` share; the first of them owns it."""
    owner = holders[0]
    made = graph.tensors[owner].producer
    assert made is not None
    uses = tuple(sorted({op for holder in holders for op in readers[holder]}))
    makers = (graph.tensors[holder].producer or OpId(0) for holder in holders)
    if not outputs.isdisjoint(holders):
        return Life(owner, "output", made, uses, len(graph.ops))
    kind: Kind = "gradient" if graph.ops[made].backward else "activation"
    return Life(owner, kind, made, uses, max(*makers, *uses, made))


def _find_live(lives: Sequence[Life], op: OpId) -> tuple[Life, ...]:
    return tuple(life for life in lives if life.made <= op <= life.end)


def _find_saved(graph: Graph, lives: Sequence[Life]) -> tuple[Life, ...]:
    start = next((OpId(i) for i, op in enumerate(graph.ops) if op.backward), None)
    if start is None:
        return ()
    return tuple(life for life in lives if life.made < start and life.uses[-1:] >= (start,))


def _find_smallest(problem: Problem) -> int | None:
    n_ops = len(problem.graph.ops)
    effort = next((effort for most, effort in _EFFORTS if n_ops <= most), None)
    if effort is None:
        return None
    return find_smallest_budget(fold_views(problem).folded, effort)[0]


def _sort_by_size(graph: Graph, lives: Sequence[Life]) -> tuple[Life, ...]:
    return tuple(sorted(lives, key=lambda life: (-graph.tensors[life.tensor].nbytes, life.tensor)))
