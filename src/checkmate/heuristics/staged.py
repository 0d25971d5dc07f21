"""Orders that recompute in the backward pass alone, by the same evicting runs as the greedy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from checkmate.graph import OpId
from checkmate.heuristics.greedy import POLICIES
from checkmate.heuristics.tables import make_tables
from checkmate.heuristics.trying import try_policy
from checkmate.problem import Problem


def order_in_stages(
    problem: Problem, budget_nbytes: int, n_forward: int, weights: Sequence[float] = ()
) -> Iterator[tuple[OpId, ...] | None]:
    """Yield orders that fit and recompute nothing before op ``n_forward``, one per policy.

    None for a policy that finds none.
    Ops that are not to be recomputed after it must be marked in ``problem``, whose views were
    folded. ``weights``, per tensor, tell which to keep rather than others.
    """
    tables = make_tables(problem)
    for policy in POLICIES[:8]:
        staged = replace(policy, recompute_from=n_forward, weights=tuple(weights))
        found = try_policy(tables, staged, budget_nbytes, budget_nbytes + 1)
        yield found.order if found.peak_nbytes <= budget_nbytes else None
