"""One try of a policy: run, measure, prune."""

from __future__ import annotations

from dataclasses import dataclass

from checkmate.graph import OpId
from checkmate.heuristics.evicting import run_evicting
from checkmate.heuristics.pruning import Layout, prune
from checkmate.heuristics.scoring import Policy
from checkmate.heuristics.tables import Tables


@dataclass(frozen=True, slots=True)
class Found:
    """An order, and the policy that led to it."""

    policy: Policy
    order: tuple[OpId, ...]
    peak_nbytes: int
    binding: OpId | None
    """The op at the peak; None: there are no ops."""
    time_ns: int

    def rank(self, budget_nbytes: int) -> tuple[int, int]:
        """Return what is less for the better: the excess over the budget, then the time."""
        return max(0, self.peak_nbytes - budget_nbytes), self.time_ns


def try_policy(tables: Tables, policy: Policy, budget_nbytes: int, useless_nbytes: int) -> Found:
    """Return what ``policy`` finds, pruned if it fits; its peak may be above the budget.

    The run gives up where it uses ``useless_nbytes``.
    """
    order = run_evicting(tables, policy, budget_nbytes, useless_nbytes)
    found = measure(tables, policy, order)
    if found.peak_nbytes > budget_nbytes:
        return found
    return measure(tables, policy, prune(tables, order, budget_nbytes))


def measure(tables: Tables, policy: Policy, order: tuple[OpId, ...]) -> Found:
    """Return ``order`` with its peak and its time."""
    if not order:
        return Found(policy, order, tables.resident_nbytes, None, 0)
    used_nbytes = Layout(tables, order).used_nbytes
    at = int(used_nbytes.argmax())
    time_ns = sum(tables.time_ns[op] for op in order)
    return Found(policy, order, int(used_nbytes[at]), order[at], time_ns)
