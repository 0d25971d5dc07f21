"""The forward graph, and the ops that all of it passes through.

Jain et al., "Checkmate", MLSys 2020, section 6.1 generalise strategies for chains to the
articulation points of the forward graph, taken as undirected.
"""

from __future__ import annotations

from dataclasses import dataclass

from checkmate.graph import OpId
from checkmate.heuristics.tables import Tables


@dataclass(frozen=True, slots=True)
class Forward:
    """The part of a training graph that computes the loss."""

    ops: tuple[OpId, ...]
    """Forward ops as far as the last of ``chain``, in graph order. Those beyond are not part of
    the network as it was written: a Transpose for a weight gradient, the mask of a Relu."""
    chain: tuple[OpId, ...]
    """The longest chain of ops that lead one to the other."""


def find_forward(tables: Tables) -> Forward:
    """Return the forward part; nothing where no op is marked as backward."""
    if not any(tables.backward) or all(tables.backward):
        return Forward((), ())
    depth = [-1] * tables.n_ops
    before: dict[OpId, OpId] = {}
    for index in range(tables.n_ops):
        op = OpId(index)
        if tables.backward[op]:
            continue
        depth[op] = 0
        for tensor in tables.reads[op]:
            producer = tables.producers[tensor]
            if depth[producer] + 1 > depth[op]:
                depth[op] = depth[producer] + 1
                before[op] = producer
    chain = [OpId(max(range(tables.n_ops), key=depth.__getitem__))]
    while chain[-1] in before:
        chain.append(before[chain[-1]])
    ops = (OpId(op) for op in range(chain[0] + 1) if not tables.backward[op])
    return Forward(tuple(ops), tuple(reversed(chain)))


def find_articulation_points(tables: Tables, forward: Forward) -> tuple[OpId, ...]:
    """Return the ops without which the ends of the longest chain would be apart.

    They are in graph order, the two ends among them. A part that hangs on one op alone, like the
    transpose of a weight, makes no point of that op.
    """
    neighbors = _find_neighbors(tables, forward)
    place = {op: index for index, op in enumerate(forward.chain)}
    points: list[OpId] = []
    seen = set(forward.chain)
    reach = 0
    for index, op in enumerate(forward.chain):
        if reach <= index:
            points.append(op)
        pending = [op]
        while pending:
            for other in neighbors[pending.pop()]:
                reach = max(reach, place.get(other, 0))
                if other not in seen:
                    seen.add(other)
                    pending.append(other)
    return tuple(points)


def _find_neighbors(tables: Tables, forward: Forward) -> dict[OpId, list[OpId]]:
    """Return, per forward op, the forward ops that share an edge with it."""
    neighbors: dict[OpId, list[OpId]] = {op: [] for op in forward.ops}
    for op in forward.ops:
        for tensor in tables.reads[op]:
            producer = tables.producers[tensor]
            if producer in neighbors:
                neighbors[op].append(producer)
                neighbors[producer].append(op)
    return neighbors
