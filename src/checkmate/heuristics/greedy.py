"""The cheapest order found that fits a budget.

First the policies that did best over training graphs and random ones, then annealing on the
weights of the tensors, from the best of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from checkmate.errors import NotFoundError
from checkmate.graph import OpId
from checkmate.heuristics.annealing import anneal
from checkmate.heuristics.keep_all import order_all
from checkmate.heuristics.scoring import Policy
from checkmate.heuristics.tables import Tables, find_node_bound, make_tables
from checkmate.heuristics.trying import Found, measure, try_policy
from checkmate.problem import Problem
from checkmate.units import format_nbytes_exactly

POLICIES = (
    Policy(2.0, 0.5, 0.3),
    Policy(1.0, 0.0, 1.0),
    Policy(1.0, 0.0, 0.3, trusting=False),
    Policy(0.5, 0.0, 0.0, trusting=False),
    Policy(2.0, 0.0, 1.0, backward_weight=3.0),
    Policy(2.0, 0.5, 0.0, trusting=False),
    Policy(1.0, 0.0, 0.0, backward_weight=3.0),
    Policy(0.5, 0.0, 1.0),
    Policy(2.0, 0.5, 0.3, trusting=False),
    Policy(0.5, 1.0, 0.3),
    Policy(0.5, 0.5, 1.0, trusting=False),
    Policy(0.5, 0.5, 0.3),
    Policy(1.5, 0.0, 1.0),
    Policy(2.0, 1.0, 1.0),
    Policy(1.5, 0.0, 0.3),
    Policy(2.0, 1.0, 1.0, backward_weight=3.0),
)
"""In the order in which each adds most to those before it, over training graphs and random ones."""
_CLOSE_SHARE = 200
"""The search for the smallest budget ends when it is this share of the budget wide."""


def order_within(problem: Problem, budget_nbytes: int, effort: int) -> tuple[OpId, ...]:
    """Return the cheapest order found whose peak is at most ``budget_nbytes``.

    Tries ``effort`` policies. The views of ``problem`` must have been folded. Raises
    `NotFoundError` when no order found fits, which proves nothing.
    """
    *_, found = improve_within(problem, budget_nbytes, effort)
    if found.peak_nbytes > budget_nbytes:
        raise make_failure(problem, budget_nbytes, found)
    return found.order


def make_failure(problem: Problem, budget_nbytes: int, found: Found) -> NotFoundError:
    """Return what to raise when ``found``, the best of all tries, does not fit."""
    return NotFoundError(
        f"no order found that fits in {format_nbytes_exactly(budget_nbytes)}: the smallest"
        f" peak reached is {format_nbytes_exactly(found.peak_nbytes)},"
        f" at {_name(problem, found.binding)}",
        hint="raise --budget",
    )


def improve_within(problem: Problem, budget_nbytes: int, effort: int) -> Iterator[Found]:
    """Yield the best of keep-all and 0, 1, ... ``effort`` policies; it may not fit.

    Ends early when nothing can be better. The views of ``problem`` must have been folded.
    """
    tables = make_tables(problem)
    yield from _search(tables, budget_nbytes, effort, measure(tables, Policy(), order_all(problem)))


def find_smallest_budget(problem: Problem, effort: int) -> tuple[int, tuple[OpId, ...]]:
    """Return the smallest peak for which an order was found, and that order.

    Whether an order is found is no monotone function of the budget, so the result is the best
    of the budgets that the search went through, each with ``effort`` policies.
    """
    *_, best = improve_smallest(problem, effort)
    return best.peak_nbytes, best.order


def improve_smallest(problem: Problem, effort: int) -> Iterator[Found]:
    """Yield the order of the smallest peak so far, again and again until no budget is left."""
    tables = make_tables(problem)
    best = measure(tables, Policy(), order_all(problem))
    low_nbytes = find_node_bound(tables)
    while low_nbytes < best.peak_nbytes - best.peak_nbytes // _CLOSE_SHARE:
        budget_nbytes = (low_nbytes + best.peak_nbytes) // 2
        for found in _search(tables, budget_nbytes, effort, best):
            best = found
            yield best
            if best.peak_nbytes <= budget_nbytes:
                break
        else:
            low_nbytes = budget_nbytes + 1
    yield from _search(tables, best.peak_nbytes, effort, best)


def _name(problem: Problem, op: OpId | None) -> str:
    return "no op" if op is None else f"op {problem.graph.ops[op].name!r}"


def _search(tables: Tables, budget_nbytes: int, effort: int, best: Found) -> Iterator[Found]:
    """Yield ``best``, then the best so far after each of ``effort`` tries.

    Ends early when nothing can be better.
    """
    yield best
    if best.rank(budget_nbytes) == (0, sum(tables.time_ns)):
        return
    for found in islice(_try_all(tables, budget_nbytes, best), effort):
        yield found
        if found.rank(budget_nbytes) == (0, sum(tables.time_ns)):
            return


def _try_all(tables: Tables, budget_nbytes: int, best: Found) -> Iterator[Found]:
    for policy in POLICIES:
        useless_nbytes = max(budget_nbytes + 1, best.peak_nbytes)
        found = try_policy(tables, policy, budget_nbytes, useless_nbytes)
        best = min(found, best, key=lambda other: other.rank(budget_nbytes))
        yield best
    yield from anneal(tables, budget_nbytes, best, POLICIES)
