"""Views folded into their storage, so that searches see only tensors that occupy memory.

A view (Reshape, Squeeze, ...) has no bytes. Its readers are made to read the tensor that owns the
storage, beside whatever else the view op reads (a computed shape); the view op itself is left out.
An order of the folded graph is turned back by computing a view at its first reader after its
storage was made. A schedule of either graph has one of the other with the same time but for the
view ops, and the same peak, but for computed shapes: the folded graph holds them as long as the
view is read, where it would be enough to have them while the view is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from checkmate.costs import Costs
from checkmate.graph import Graph, Op, OpId, Tensor, TensorId, find_readers
from checkmate.liveness import insert_frees
from checkmate.placement import ArenaRules
from checkmate.problem import Problem
from checkmate.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Folding:
    """A problem, the same without its views, and the way back."""

    original: Problem
    folded: Problem
    kept: tuple[OpId, ...]
    """Per folded op: the original op."""
    view_ns: int
    """The time of running each folded view op once."""
    spare_nbytes: int
    """What a peak of the folded graph may be above that of the original at most."""

    def fold(self, order: Sequence[OpId]) -> tuple[OpId, ...]:
        """Return the folded order that stands for ``order``, without the views."""
        new_op = {old: OpId(new) for new, old in enumerate(self.kept)}
        return tuple(new_op[op] for op in order if op in new_op)

    def unfold(self, order: Sequence[OpId]) -> tuple[OpId, ...]:
        """Return the order of the original graph that a folded ``order`` stands for."""
        return _Unfolder(self.original.graph).unfold([self.kept[op] for op in order])

    def lay_out(self, order: Sequence[OpId]) -> Schedule:
        """Return the schedule of the original graph that a folded ``order`` stands for."""
        return insert_frees(self.original.graph, self.unfold(order))


def fold_views(problem: Problem) -> Folding:
    """Return ``problem`` with every view folded that is read or is a graph output.

    A view that nothing reads stays: it is an op like others, with an output of no bytes.
    """
    graph, costs = problem.graph, problem.costs
    bases = _find_bases(graph)
    views = _find_folded_views(graph)
    view_ops = {graph.tensors[view].producer for view in views}
    kept = tuple(OpId(i) for i in range(len(graph.ops)) if OpId(i) not in view_ops)
    new_op = {old: OpId(new) for new, old in enumerate(kept)}
    owners = [TensorId(i) for i in range(len(graph.tensors)) if TensorId(i) not in views]
    new_tensor = {old: TensorId(new) for new, old in enumerate(owners)}

    def rename(ids: Iterable[TensorId]) -> tuple[TensorId, ...]:
        found = dict.fromkeys(base for id_ in ids for base in bases[id_])
        return tuple(new_tensor[base] for base in found)

    def rename_op(op: Op) -> Op:
        outputs = tuple(new_tensor[output] for output in op.outputs)
        return Op(op.name, rename(op.inputs), outputs, op.recomputable, op.backward)

    def rename_tensor(tensor: Tensor) -> Tensor:
        producer = None if tensor.producer is None else new_op[tensor.producer]
        source = None if tensor.source is None else rename((tensor.source,))[0]
        return Tensor(tensor.name, tensor.nbytes, producer, source)

    folded_graph = Graph(
        graph.name,
        tuple(rename_op(graph.ops[op]) for op in kept),
        tuple(rename_tensor(graph.tensors[owner]) for owner in owners),
        rename(graph.outputs),
    )
    folded_costs = Costs(
        tuple(costs.time_ns[op] for op in kept),
        tuple(costs.workspace_nbytes[op] for op in kept),
        costs.origin,
    )
    view_ns = costs.total_ns - folded_costs.total_ns
    arena = problem.arena
    rules = None if arena is None else _fold_rules(arena, bases, new_tensor, new_op)
    folded = Problem(folded_graph, folded_costs, rules)
    return Folding(problem, folded, kept, view_ns, _sum_shapes(graph, views))


def _sum_shapes(graph: Graph, views: Iterable[TensorId]) -> int:
    """Return the bytes of what ops make that the ops of ``views`` read beside the source."""
    bases = _find_bases(graph)
    found = dict.fromkeys(base for view in views for base in bases[view][1:])
    made = (graph.tensors[base] for base in found if graph.tensors[base].producer is not None)
    return sum(tensor.nbytes for tensor in made)


def _fold_rules(
    rules: ArenaRules,
    bases: Sequence[tuple[TensorId, ...]],
    new_tensor: Mapping[TensorId, TensorId],
    new_op: Mapping[OpId, OpId],
) -> ArenaRules:
    """Return ``rules`` by the ids of the folded graph, each view by the owner of its storage."""
    in_place = {
        new_tensor[made]: new_tensor[bases[given][0]]
        for made, given in rules.in_place.items()
        if made in new_tensor
    }
    resident = tuple(new_tensor[tensor] for tensor in rules.resident)
    partial = frozenset(new_op[op] for op in rules.partial if op in new_op)
    n_later = {new_op[op]: count for op, count in rules.n_later.items() if op in new_op}
    return ArenaRules(rules.setup, resident, in_place, partial, n_later)


def _find_folded_views(graph: Graph) -> frozenset[TensorId]:
    readers, outputs = find_readers(graph), frozenset(graph.outputs)
    return frozenset(
        TensorId(index)
        for index, tensor in enumerate(graph.tensors)
        if tensor.source is not None and (readers[index] or TensorId(index) in outputs)
    )


def _find_bases(graph: Graph) -> list[tuple[TensorId, ...]]:
    """Return, per tensor, what must be in memory to have it: itself, or what its view op reads.

    The owner of the storage comes first.
    """
    views = _find_folded_views(graph)
    bases: list[tuple[TensorId, ...]] = [(TensorId(i),) for i in range(len(graph.tensors))]
    for op in graph.ops:
        for output in op.outputs:
            source = graph.tensors[output].source
            if output in views and source is not None:
                others = (base for input_ in op.inputs for base in bases[input_])
                bases[output] = tuple(dict.fromkeys((*bases[source], *others)))
    return bases


class _Unfolder:
    """Puts view ops into an order, each at its first reader after its storage was made."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._views = _find_folded_views(graph)
        self._owner = [bases[0] for bases in _find_bases(graph)]
        self._n_computes = [0] * len(graph.ops)
        self._made_from: dict[TensorId, int] = {}
        self._order: list[OpId] = []

    def unfold(self, order: Sequence[OpId]) -> tuple[OpId, ...]:
        for op in order:
            self._make_views(self._graph.ops[op].inputs)
            self._compute(op)
        self._make_views(self._graph.outputs)
        return tuple(self._order)

    def _make_views(self, tensors: Sequence[TensorId]) -> None:
        """Compute those of ``tensors`` that are views of storage made since their last compute."""
        pending = list(reversed(tensors))
        while pending:
            tensor = pending.pop()
            producer = self._graph.tensors[tensor].producer
            if tensor not in self._views or producer is None or self._is_current(tensor):
                continue
            missing = [t for t in self._graph.ops[producer].inputs if not self._is_current(t)]
            if missing:
                pending += [tensor, *reversed(missing)]
            else:
                self._made_from[tensor] = self._version(tensor)
                self._compute(producer)

    def _is_current(self, tensor: TensorId) -> bool:
        return tensor not in self._views or self._made_from.get(tensor) == self._version(tensor)

    def _version(self, view: TensorId) -> int:
        """Return how often the storage of ``view`` was made."""
        producer = self._graph.tensors[self._owner[view]].producer
        return 0 if producer is None else self._n_computes[producer]

    def _compute(self, op: OpId) -> None:
        self._n_computes[op] += 1
        self._order.append(op)
