"""Chains of stages from evicting runs, and what programs tell of where to look for better ones."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest

from checkmate.graph import OpId
from checkmate.heuristics.staged import order_in_stages
from checkmate.milp.chain import Chain
from checkmate.milp.chain_encode import Windows
from checkmate.milp.chain_frame import Frame
from checkmate.milp.model import FloatArray
from checkmate.problem import Problem

_GUIDANCE = 3.0
"""What the program retains weighs e to the power of this more in an evicting run, or less."""
_USED = 1e-3
"""What a relaxation recomputes less of counts for nothing."""


def draft(
    chain: Chain, problem: Problem, budget_nbytes: int, weights: Sequence[float]
) -> Iterator[tuple[OpId, ...] | None]:
    """Yield what each run leads to, with ``weights`` per tensor; None: nothing that fits."""
    ops = tuple(
        replace(op, recomputable=op.recomputable and is_forward)
        for op, is_forward in zip(problem.graph.ops, chain.is_forward, strict=True)
    )
    # Views that nothing reads are still there; one that may run only once would be none.
    tensors = tuple(replace(tensor, source=None) for tensor in problem.graph.tensors)
    pinned = Problem(replace(problem.graph, ops=ops, tensors=tensors), problem.costs)
    yield from order_in_stages(pinned, budget_nbytes, chain.n_forward, weights)


def weigh(frame: Frame, values: FloatArray) -> list[float]:
    """Return weights of tensors: more for what ``values`` retain when it was first made."""
    chain = frame.chain
    weights = [1.0] * len(chain.graph.tensors)
    for e, tensor in enumerate(chain.graph.tensors):
        if tensor.producer is not None:
            column = int(frame.columns.state[chain.births[tensor.producer], e])
            retained = values[column] if column >= 0 else 0.5
            weights[e] = math.exp(_GUIDANCE * (2 * retained - 1))
    return weights


def find_used(frame: Frame, values: FloatArray) -> list[list[OpId]]:
    """Return, per stage, the near recomputes that ``values`` make, in whole or in part."""
    used: list[list[OpId]] = [[] for _ in frame.chain.stages]
    for (s, k), column in frame.columns.run.items():
        if values[column] > _USED:
            used[s].append(k)
    return used


def join_stages(windows: Windows, others: Windows | None) -> list[list[OpId]]:
    """Return the recomputes of both, per stage; None: there are no others."""
    return [[*some, *more] for some, more in zip_longest(windows, others or (), fillvalue=())]


def choose(frame: Frame, used: Collection[OpId], windows: Windows | None) -> list[list[OpId]]:
    """Return, per stage, what of ``windows``, and of ops that these have or ``used``, is near."""
    given = windows or [()] * len(frame.hops.near)
    allowed = {*used, *(k for window in given for k in window)}
    pairs = zip(frame.hops.near, given, strict=True)
    return [[*window, *(k for k in near if k in allowed)] for near, window in pairs]
