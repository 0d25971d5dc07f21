"""The cheapest order found that fits a budget: evicting runs with many policies, pruned.

First the policies that did best over training graphs and random ones, then the best of them
with random weights on the tensors, drawn around the best found so far.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from checkmate.errors import NotFoundError
from checkmate.graph import OpId, TensorId
from checkmate.heuristics.evicting import run_evicting
from checkmate.heuristics.keep_all import order_all
from checkmate.heuristics.pruning import Layout, prune
from checkmate.heuristics.scoring import Policy
from checkmate.heuristics.tables import Tables, find_node_bound, make_tables
from checkmate.problem import Problem
from checkmate.units import format_nbytes_exactly

_POLICIES = (
    Policy(1.5, 0.5, 0.3),
    Policy(1.5, 0.0, 1.0),
    Policy(0.5, 0.0, 0.0),
    Policy(1.0, 0.5, 0.3, True, backward_weight=math.inf),
    Policy(1.5, 0.5, 1.0),
    Policy(1.5, 0.5, 0.0),
    Policy(1.5, 0.0, 0.3),
    Policy(0.5, 0.5, 0.3),
    Policy(0.5, 0.0, 1.0),
    Policy(0.5, 1.0, 1.0),
    Policy(1.0, 0.0, 0.0, backward_weight=math.inf),
    Policy(0.5, 0.0, 0.3),
    Policy(0.5, 0.0, 1.0, backward_weight=math.inf),
    Policy(1.0, 0.0, 0.3, backward_weight=math.inf),
    Policy(1.5, 0.5, 1.0, backward_weight=math.inf),
    Policy(1.0, 1.0, 1.0),
)
_SEED = 0
_CLOSE_SHARE = 200
"""The search for the smallest budget ends when it is this share of the budget wide."""


@dataclass(frozen=True, slots=True)
class _Found:
    policy: Policy
    order: tuple[OpId, ...]
    peak_nbytes: int
    binding: OpId | None
    """The op at the peak; None: there are no ops."""
    time_ns: int

    def rank(self, budget_nbytes: int) -> tuple[int, int]:
        """Return what is less for the better: the excess over the budget, then the time."""
        return max(0, self.peak_nbytes - budget_nbytes), self.time_ns


def order_within(problem: Problem, budget_nbytes: int, effort: int) -> tuple[OpId, ...]:
    """Return the cheapest order found whose peak is at most ``budget_nbytes``.

    Tries ``effort`` policies. The views of ``problem`` must have been folded. Raises
    `NotFoundError` when no order found fits, which proves nothing.
    """
    tables = make_tables(problem)
    found = _search(tables, budget_nbytes, effort, _measure(tables, Policy(), order_all(problem)))
    if found.peak_nbytes > budget_nbytes:
        raise NotFoundError(
            f"no order found that fits in {format_nbytes_exactly(budget_nbytes)}: the smallest"
            f" peak reached is {format_nbytes_exactly(found.peak_nbytes)},"
            f" at {_name(problem, found.binding)}",
            hint="raise the budget, or try harder",
        )
    return found.order


def find_smallest_budget(problem: Problem, effort: int) -> tuple[int, tuple[OpId, ...]]:
    """Return the smallest peak for which an order was found, and that order.

    Whether an order is found is no monotone function of the budget, so the result is the best
    of the budgets that the search went through, each with ``effort`` policies.
    """
    tables = make_tables(problem)
    best = _measure(tables, Policy(), order_all(problem))
    low_nbytes = find_node_bound(tables)
    while low_nbytes < best.peak_nbytes - best.peak_nbytes // _CLOSE_SHARE:
        budget_nbytes = (low_nbytes + best.peak_nbytes) // 2
        best = _search(tables, budget_nbytes, effort, best)
        if best.peak_nbytes > budget_nbytes:
            low_nbytes = budget_nbytes + 1
    return best.peak_nbytes, best.order


def _name(problem: Problem, op: OpId | None) -> str:
    return "no op" if op is None else f"op {problem.graph.ops[op].name!r}"


def _search(tables: Tables, budget_nbytes: int, effort: int, best: _Found) -> _Found:
    """Return the best of ``best`` and the orders of ``effort`` runs."""
    rng = random.Random(_SEED)  # noqa: S311 - no secret depends on it
    for trial in range(effort):
        if best.time_ns == sum(tables.time_ns) and best.peak_nbytes <= budget_nbytes:
            break
        policy = _POLICIES[trial] if trial < len(_POLICIES) else _vary(rng, tables, best)
        found = _try(tables, budget_nbytes, policy, best)
        if found.rank(budget_nbytes) <= best.rank(budget_nbytes):
            best = found
    return best


def _try(tables: Tables, budget_nbytes: int, policy: Policy, best: _Found) -> _Found:
    useless_nbytes = max(budget_nbytes + 1, best.peak_nbytes)
    order = run_evicting(tables, policy, budget_nbytes, useless_nbytes)
    found = _measure(tables, policy, order)
    if found.peak_nbytes > budget_nbytes:
        return found
    return _measure(tables, policy, prune(tables, order, budget_nbytes))


def _measure(tables: Tables, policy: Policy, order: tuple[OpId, ...]) -> _Found:
    if not order:
        return _Found(policy, order, tables.resident_nbytes, None, 0)
    used_nbytes = Layout(tables, order).used_nbytes
    at = int(used_nbytes.argmax())
    time_ns = sum(tables.time_ns[op] for op in order)
    return _Found(policy, order, int(used_nbytes[at]), order[at], time_ns)


def _vary(rng: random.Random, tables: Tables, best: _Found) -> Policy:
    """Return the policy of ``best`` with other weights on a few tensors."""
    weights = list(best.policy.weights) or [1.0] * len(tables.nbytes)
    for tensor, factor in rng.choice((_keep_one, _drop_one, _shake))(rng, tables, best):
        weights[tensor] *= factor
    return replace(best.policy, weights=tuple(weights))


def _keep_one(rng: random.Random, tables: Tables, best: _Found) -> Iterator[tuple[TensorId, float]]:
    """Raise what one recomputed op makes."""
    counts = Counter(best.order)
    again = [op for op in counts if counts[op] > 1]
    for tensor in tables.makes[rng.choice(again)] if again else ():
        yield tensor, math.exp(rng.uniform(0.5, 3.0))


def _drop_one(rng: random.Random, tables: Tables, _: _Found) -> Iterator[tuple[TensorId, float]]:
    """Lower what one op makes and raise what it reads, from which it can be made again."""
    op = rng.randrange(tables.n_ops)
    for tensor in tables.makes[op]:
        yield tensor, math.exp(-rng.uniform(0.5, 4.0))
    for tensor in tables.reads[op]:
        yield tensor, math.exp(rng.uniform(0.5, 3.0))


def _shake(rng: random.Random, tables: Tables, _: _Found) -> Iterator[tuple[TensorId, float]]:
    """Move a few tensors up or down."""
    n_tensors = len(tables.nbytes)
    for tensor in rng.sample(range(n_tensors), max(1, n_tensors // 30)):
        yield TensorId(tensor), math.exp(rng.gauss(0.0, 1.0))
