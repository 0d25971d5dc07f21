"""The baseline: nothing is recomputed."""

from __future__ import annotations

from checkmate.graph import OpId
from checkmate.problem import Problem


def order_all(problem: Problem) -> tuple[OpId, ...]:
    """Return each op once, in graph order."""
    return tuple(OpId(op) for op in range(len(problem.graph.ops)))
