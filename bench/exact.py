"""How long the exact search takes: ``python bench/exact.py [--gap 0.01] PROBLEM.json SHARE ...``.

Prints one line a budget, each a share of the peak without recompute.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from checkmate.errors import CheckmateError
from checkmate.folding import fold_views
from checkmate.formats.problem_json import read_problem
from checkmate.graph import OpId
from checkmate.liveness import insert_frees
from checkmate.plan import certify
from checkmate.problem import Problem
from checkmate.search.exact import solve_exact
from checkmate.search.finding import Limits
from checkmate.simulate import simulate


def measure(problem: Problem, share: float, limits: Limits) -> str:
    """Return one line of the table."""
    graph = problem.graph
    in_order = insert_frees(graph, [OpId(i) for i in range(len(graph.ops))])
    budget_nbytes = int(share * simulate(problem, in_order).peak.nbytes)
    head = f"{graph.name:24} {len(graph.ops):5} {100 * share:6.1f}% {budget_nbytes:15,}"
    began_s = time.monotonic()
    try:
        finding = solve_exact(problem, budget_nbytes, limits)
    except CheckmateError as error:
        return f"{head}  {type(error).__name__} in {time.monotonic() - began_s:.1f} s"
    seconds = time.monotonic() - began_s
    plan = certify(problem, insert_frees(graph, finding.order), budget_nbytes, finding.claim)
    total_ns = problem.costs.total_ns
    overhead = 100 * (plan.time_ns / total_ns - 1)
    bound = 100 * (plan.claim.bound_ns / total_ns - 1)
    return f"{head} {overhead:8.3f}% {bound:8.3f}% {seconds:7.1f} s  {plan.claim.termination}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problem", type=Path)
    parser.add_argument("shares", type=float, nargs="+")
    parser.add_argument("--gap", type=float, default=0.01)
    parser.add_argument("--time-limit", type=float, default=300.0)
    options = parser.parse_args()
    problem = fold_views(read_problem(options.problem)).folded
    print(f"{'problem':24} {'ops':>5} {'share':>7} {'budget B':>15} {'overhead':>9} {'bound':>9}")
    for share in options.shares:
        print(measure(problem, share, Limits(options.gap, options.time_limit)), flush=True)


if __name__ == "__main__":
    main()
