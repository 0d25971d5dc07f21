"""Simulated annealing on the weights that a policy gives to tensors.

The move that matters most where there is no backward pass is to lower a tensor and raise what its
producer reads, from which it can then be made again.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from checkmate.graph import TensorId
from checkmate.heuristics.scoring import Policy
from checkmate.heuristics.tables import Tables
from checkmate.heuristics.trying import Found, try_policy

_SEED = 0
_ROUND = 50
"""Every so many tries the search starts again from the best, and hot."""
_HEAT = 0.05
"""At the start of a round, a step of this share of the recompute time up is taken one time in e."""
_OTHER_POLICY = 0.1
"""How often the rest of the policy changes as well."""
_SHAKEN = 30
"""One tensor in so many is moved when all may be."""


def anneal(
    tables: Tables, budget_nbytes: int, best: Found, policies: Sequence[Policy]
) -> Iterator[Found]:
    """Yield, for ever, the best found so far, after one more try each."""
    rng = random.Random(_SEED)  # noqa: S311 - no secret depends on it
    current = best
    while True:
        for trial in range(_ROUND):
            current = current if trial else best
            policy = _vary(rng, tables, current, policies)
            useless_nbytes = max(budget_nbytes + 1, best.peak_nbytes)
            found = try_policy(tables, policy, budget_nbytes, useless_nbytes)
            heat = _HEAT * (1 - trial / _ROUND) ** 2 * (current.time_ns - sum(tables.time_ns))
            if _is_taken(rng, found.rank(budget_nbytes), current.rank(budget_nbytes), heat):
                current = found
            best = min(best, current, key=lambda other: other.rank(budget_nbytes))
            yield best


def _is_taken(
    rng: random.Random, found: tuple[int, int], current: tuple[int, int], heat: float
) -> bool:
    """Return whether to go on from ``found``; both are an excess and a time."""
    if found <= current:
        return True
    if found[0] > current[0] or heat <= 0:
        return False
    return rng.random() < math.exp((current[1] - found[1]) / heat)


def _vary(rng: random.Random, tables: Tables, current: Found, policies: Sequence[Policy]) -> Policy:
    """Return the policy of ``current`` with other weights on a few tensors."""
    weights = list(current.policy.weights) or [1.0] * len(tables.nbytes)
    for tensor, power in rng.choice((_keep_one, _drop_one, _shake))(rng, tables, current):
        weights[tensor] *= math.exp(power)
    base = rng.choice(policies) if rng.random() < _OTHER_POLICY else current.policy
    return replace(base, weights=tuple(weights))


def _keep_one(
    rng: random.Random, tables: Tables, current: Found
) -> Iterator[tuple[TensorId, float]]:
    """Raise what one recomputed op makes."""
    again = [op for op, count in Counter(current.order).items() if count > 1]
    for tensor in tables.makes[rng.choice(again)] if again else ():
        yield tensor, rng.uniform(0.5, 3.0)


def _drop_one(rng: random.Random, tables: Tables, _: Found) -> Iterator[tuple[TensorId, float]]:
    """Lower what one op makes and raise what it reads."""
    op = rng.randrange(tables.n_ops)
    for tensor in tables.makes[op]:
        yield tensor, -rng.uniform(0.5, 4.0)
    for tensor in tables.reads[op]:
        yield tensor, rng.uniform(0.5, 3.0)


def _shake(rng: random.Random, tables: Tables, _: Found) -> Iterator[tuple[TensorId, float]]:
    """Move a few tensors up or down."""
    n_tensors = len(tables.nbytes)
    for tensor in rng.sample(range(n_tensors), max(1, n_tensors // _SHAKEN)):
        yield TensorId(tensor), rng.gauss(0.0, 1.0)
