"""What must be computed when it is given what is retained: phase two of two-phase rounding.

Jain et al., "Checkmate", MLSys 2020, section 5: once S is fixed, the best R follows. Published
strategies that say what to retain, and nothing of what to recompute, are turned into orders here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set

from checkmate.graph import OpId, TensorId
from checkmate.heuristics.tables import Tables


def order_given(tables: Tables, retained: Sequence[Collection[TensorId]]) -> tuple[OpId, ...]:
    """Return the frontier-advancing order of fewest computes that retains what it is told.

    Before stage ``t``, ``retained[t]`` is in memory, beside what cannot be made again and graph
    outputs, from their first compute on. What is retained out of a stage and was not retained
    into it is made in it.
    """
    fixed = [tensor in tables.outputs or not tables.recomputable[op] for tensor, op in
             enumerate(tables.producers)]  # fmt: skip
    order: list[OpId] = []
    before: Set[TensorId] = frozenset()
    for t in range(tables.n_ops):
        after = frozenset(retained[t + 1]) if t + 1 < tables.n_ops else frozenset()
        asked = {tables.producers[tensor] for tensor in after - before if not fixed[tensor]}
        runs = {OpId(t)}
        pending = [OpId(t), *sorted(op for op in asked if op < t)]
        while pending:
            op = pending.pop()
            runs.add(op)
            missing = (e for e in tables.reads[op] if e not in before and not fixed[e])
            pending.extend(p for p in map(tables.producers.__getitem__, missing) if p not in runs)
        order += sorted(runs)
        before = after
    return tuple(order)


def order_last(tables: Tables) -> tuple[OpId, ...]:
    """Return the order that retains what the last op made and nothing else, graph outputs apart.

    The strategy "checkpoint last node" of the program published with "Checkmate": the least that
    can be retained, at a cost that grows with the square of the number of ops.
    """
    return order_given(tables, [(), *tables.makes[:-1]] if tables.n_ops else [])
