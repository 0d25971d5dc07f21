"""A problem without its small tensors: what holds for it holds for the problem.

Most tensors of a training graph are small (statistics, biases, scales), and of no weight in the
memory rows; but the columns of their recomputes are as many as those of others. So the smallest,
together a share of the budget that hardly matters, are set aside: they count as in memory at all
times, and take none. What makes such tensors alone runs once.
"""

from __future__ import annotations

from dataclasses import replace

from checkmate.graph import Op, Tensor, TensorId
from checkmate.problem import Problem

SHARE = 0.001
"""Of the budget without resident tensors: what is set aside takes no more, all together."""


def set_small_aside(problem: Problem, budget_nbytes: int, share: float = SHARE) -> Problem:
    """Return ``problem`` without tensors that take at most ``share`` of the budget together.

    A schedule of ``problem`` that fits is one of it, fits, and takes no less time, once recomputes
    of what now runs once are left out.
    """
    graph = problem.graph
    small = _find_small(problem, share * (budget_nbytes - graph.resident_nbytes))
    ops = tuple(_drop_small(op, small) for op in graph.ops)
    tensors = tuple(_empty(tensor, is_small=e in small) for e, tensor in enumerate(graph.tensors))
    outputs = tuple(e for e in graph.outputs if e not in small)
    return replace(problem, graph=replace(graph, ops=ops, tensors=tensors, outputs=outputs))


def _find_small(problem: Problem, room_nbytes: float) -> frozenset[TensorId]:
    """Return the smallest of the tensors that are made, as many as ``room_nbytes`` hold."""
    made = [
        (tensor.nbytes, TensorId(e))
        for e, tensor in enumerate(problem.graph.tensors)
        if tensor.producer is not None
    ]
    small: set[TensorId] = set()
    total_nbytes = 0
    for nbytes, e in sorted(made):
        total_nbytes += nbytes
        if total_nbytes > room_nbytes:
            break
        small.add(e)
    return frozenset(small)


def _drop_small(op: Op, small: frozenset[TensorId]) -> Op:
    """Return ``op`` without small inputs; it may run again only if it makes what is not small."""
    inputs = tuple(e for e in op.inputs if e not in small)
    return replace(
        op, inputs=inputs, recomputable=op.recomputable and not small.issuperset(op.outputs)
    )


def _empty(tensor: Tensor, *, is_small: bool) -> Tensor:
    nbytes = 0 if is_small else tensor.nbytes
    return replace(tensor, nbytes=nbytes, source=None)  # views that nothing reads are still there
