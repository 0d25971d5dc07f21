"""The strategies with which the Checkmate paper is compared, in its section 6.1, as searches.

Each is an order that `simulate` judges; what is known of the best is the time of every op once.
"""

from __future__ import annotations

from checkmate.heuristics.chen import list_chain, list_forward, order_by_sqrt, order_greedily
from checkmate.heuristics.given import order_last
from checkmate.heuristics.revolve import order_by_revolve, require_chain
from checkmate.heuristics.tables import make_tables
from checkmate.problem import Problem
from checkmate.search.claims import judge
from checkmate.search.finding import Finding, Limits


def find_by_last(problem: Problem, budget_nbytes: int, limits: Limits) -> Finding:
    """Retain nothing from stage to stage but what the last op made."""
    order = order_last(make_tables(problem))
    return judge("checkpoint-last", problem, budget_nbytes, limits, order)


def find_by_chain_sqrt(problem: Problem, budget_nbytes: int, limits: Limits) -> Finding:
    """Retain every k-th op of a chain; raise `UnsuitableError` for other graphs."""
    require_chain(problem, make_tables(problem))
    order = order_by_sqrt(problem, list_chain)
    return judge("chen-sqrt", problem, budget_nbytes, limits, order)


def find_by_chain_greedy(problem: Problem, budget_nbytes: int, limits: Limits) -> Finding:
    """Retain the ends of segments of a chain; raise `UnsuitableError` for other graphs."""
    require_chain(problem, make_tables(problem))
    order = order_greedily(problem, budget_nbytes, list_chain)
    return judge("chen-greedy", problem, budget_nbytes, limits, order)


def find_by_ap_sqrt(problem: Problem, budget_nbytes: int, limits: Limits) -> Finding:
    """Retain every k-th articulation point."""
    return judge("ap-sqrt", problem, budget_nbytes, limits, order_by_sqrt(problem))


def find_by_ap_greedy(problem: Problem, budget_nbytes: int, limits: Limits) -> Finding:
    """Retain articulation points at the ends of segments."""
    order = order_greedily(problem, budget_nbytes)
    return judge("ap-greedy", problem, budget_nbytes, limits, order)


def find_by_linearized_sqrt(problem: Problem, budget_nbytes: int, limits: Limits) -> Finding:
    """Retain every k-th forward op, the graph taken for a chain."""
    order = order_by_sqrt(problem, list_forward)
    return judge("linearized-sqrt", problem, budget_nbytes, limits, order)


def find_by_linearized_greedy(problem: Problem, budget_nbytes: int, limits: Limits) -> Finding:
    """Retain forward ops at the ends of segments, the graph taken for a chain."""
    order = order_greedily(problem, budget_nbytes, list_forward)
    return judge("linearized-greedy", problem, budget_nbytes, limits, order)


def find_by_revolve(problem: Problem, budget_nbytes: int, limits: Limits) -> Finding:
    """Reverse a chain by binomial checkpointing; raise `UnsuitableError` for other graphs."""
    order = order_by_revolve(problem, budget_nbytes)
    return judge("revolve", problem, budget_nbytes, limits, order)
