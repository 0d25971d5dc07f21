"""The op order, chosen before a search: a better one costs nothing."""

from __future__ import annotations

from typing import Literal, get_args

from checkmate.engine.solve import run_baseline
from checkmate.folding import fold_views
from checkmate.graph import OpId
from checkmate.heuristics.ordering import order_for_memory
from checkmate.plan import Plan, certify
from checkmate.problem import Problem
from checkmate.reordering import Reordering, reorder

Order = Literal["file", "memory"]
"""The order of the file; one that needs less memory without recompute, where one is found."""

ORDERS: tuple[Order, ...] = get_args(Order)


def choose_order(problem: Problem, order: Order) -> Reordering:
    """Return ``problem`` with its ops in ``order``.

    The peak without recompute is at most that of the file order, and where it is not less, the
    file order stays.
    """
    in_file_order = reorder(problem, [OpId(op) for op in range(len(problem.graph.ops))])
    if order == "file":
        return in_file_order
    folding = fold_views(problem)
    chosen = folding.unfold(order_for_memory(folding.folded))
    found = reorder(problem, chosen)
    is_less = run_baseline(found.reordered).peak.nbytes < run_baseline(problem).peak.nbytes
    return found if is_less else in_file_order


def restore_plan(reordering: Reordering, plan: Plan) -> Plan:
    """Return ``plan``, of the reordered problem, as one of the original.

    What is claimed of other schedules holds for the order that was chosen.
    """
    schedule = reordering.restore(plan.schedule)
    return certify(reordering.original, schedule, plan.budget_nbytes, plan.claim)
