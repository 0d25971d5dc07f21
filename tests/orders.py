"""Orders of computes, and what must be true of them."""

from __future__ import annotations

import random
from collections.abc import Sequence

from builders import op, problem
from checkmate.graph import OpId
from checkmate.liveness import insert_frees
from checkmate.problem import Problem
from checkmate.simulate import Simulation, simulate


def run(small: Problem, order: Sequence[OpId]) -> Simulation:
    """Return what the judge says of ``order`` with frees after last uses."""
    return simulate(small, insert_frees(small.graph, order))


def names(small: Problem, order: Sequence[OpId]) -> str:
    """Return the names of the ops of ``order``."""
    return " ".join(small.graph.ops[i].name for i in order)


def is_frontier_advancing(order: Sequence[OpId]) -> bool:
    """Return whether first runs are in graph order and each stage runs ops in graph order."""
    frontier, last = 0, -1
    for op_ in order:
        if op_ > frontier or op_ <= last:
            return False
        frontier, last = (frontier + 1, -1) if op_ == frontier else (frontier, op_)
    return True


def random_layered(rng: random.Random, n_ops: int) -> Problem:
    """Return a random problem without a backward pass: each op reads up to three of the last four.

    Every tensor that nothing reads is an output.
    """
    specs = []
    for i in range(n_ops):
        near = range(max(0, i - 4), i)
        reads = sorted(rng.sample(near, k=min(len(near), rng.choice((1, 2, 2, 3)))))
        specs.append(
            op(f"o{i}", " ".join(f"o{j}" for j in reads),
               nbytes=rng.randint(1, 6), time_ns=rng.randint(1, 9))
        )  # fmt: skip
    read = {name for spec in specs for name in spec.reads}
    outputs = " ".join(spec.name for spec in specs if spec.name not in read)
    return problem(*specs, outputs=outputs, name="layered")
