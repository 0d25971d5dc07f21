"""Which recomputes have columns of their own in the program that bounds all stages alike.

Math names as in `columns.py`: stage ``t`` ends with the first run of op ``t``. A recompute of ``k``
in stage ``t`` is *near* when at most ``depth`` steps lead from ``k`` to ``t`` through ops that may
run again; others are *deep*. A stage *touches* a tensor when its op ``t``, or one of its near
recomputes, reads or makes it.
"""

from __future__ import annotations

from checkmate.graph import Graph, OpId, TensorId


def find_near(graph: Graph, depth: int) -> tuple[tuple[OpId, ...], ...]:
    """Return, per stage, the near recomputes, ascending.

    The last op counts as a reader of the graph outputs, which must be there after it.
    """
    return tuple(_find_ancestors(graph, OpId(t), depth) for t in range(len(graph.ops)))


def find_uses(graph: Graph, t: int) -> tuple[TensorId, ...]:
    """Return what must be in memory at the end of stage ``t``, but for resident tensors."""
    op = graph.ops[t]
    kept = graph.outputs if t == len(graph.ops) - 1 else ()
    wanted = (e for e in (*op.inputs, *kept) if e not in op.outputs)
    return tuple(e for e in dict.fromkeys(wanted) if graph.tensors[e].producer is not None)


def find_touches(graph: Graph, near: tuple[tuple[OpId, ...], ...]) -> list[list[int]]:
    """Return, per tensor, the stages that touch it after the one that first makes it, ascending."""
    touches: list[list[int]] = [[] for _ in graph.tensors]
    for t, again in enumerate(near):
        touched = dict.fromkeys(find_uses(graph, t))
        for k in again:
            touched |= dict.fromkeys((*graph.ops[k].inputs, *graph.ops[k].outputs))
        for e in touched:
            if graph.tensors[e].producer is not None:
                touches[e].append(t)
    return touches


def _find_ancestors(graph: Graph, t: OpId, depth: int) -> tuple[OpId, ...]:
    found: set[OpId] = set()
    front = find_uses(graph, t)
    for _ in range(depth):
        makers = (graph.tensors[e].producer for e in front)
        new = {k for k in makers if k is not None and graph.ops[k].recomputable} - found
        found |= new
        front = tuple(e for k in sorted(new) for e in graph.ops[k].inputs)
    return tuple(sorted(found))
