"""Local search and the bound of all frontier-advancing schedules: overhead, bound, gap, seconds.

    python bench/nosplit.py [--seconds 10] [--budgets 90%,80%] [PROBLEM.json|GRAPH.onnx ...]

Without arguments, two random layered graphs of 1,000 ops (see `layered.py`). "turns" is the search
that keeps first runs in file order, whose schedules the bound is for; "free" is the one that
`--strategy anneal` runs, which also runs an op late when nothing reads it before; it begins from
the result of the former. Seconds are until the best was found. Budgets are shares or bytes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from checkmate.errors import NotFoundError
from checkmate.folding import fold_views
from checkmate.formats.problem_json import read_problem
from checkmate.graph import OpId
from checkmate.heuristics.greedy import order_within
from checkmate.heuristics.keep_all import order_all
from checkmate.heuristics.local_search import Manner, search_locally
from checkmate.heuristics.tables import make_tables
from checkmate.onnxio.read import read_model
from checkmate.problem import Problem
from checkmate.profiler.flops import estimate_costs
from checkmate.search.claims import run_order
from checkmate.search.finding import Limits
from checkmate.search.frontier_bound import bound_frontier
from layered import make_layered

Order = tuple[OpId, ...]


def main() -> None:
    """Print one line a budget."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--budgets", default="90%,80%,70%")
    options = parser.parse_args()
    titles = ("problem", "budget", "greedy", "turns %", "s", "free %", "s", "bound %", "s")
    print("{:22} {:>14} {:>8} {:>8} {:>6} {:>8} {:>6} {:>8} {:>6}".format(*titles))
    for problem in read_all(options.paths):
        peak_nbytes = run_order(problem, order_all(problem)).peak.nbytes
        for text in options.budgets.split(","):
            share = text.removesuffix("%")
            budget_nbytes = int(share) if share == text else peak_nbytes * int(share) // 100
            line = " ".join(measure(problem, budget_nbytes, options.seconds))
            print(f"{problem.graph.name[:22]:22} {budget_nbytes:14,} {line}", flush=True)


def read_all(paths: Sequence[Path]) -> Iterator[Problem]:
    """Yield the problems in ``paths``, or the random ones."""
    if not paths:
        yield from (make_layered(1000, 30, seed) for seed in (0, 1))
    for path in paths:
        if path.suffix == ".json":
            problem = read_problem(path)
        else:
            model = read_model(path, {})
            problem = Problem(model.graph, estimate_costs(model))
        yield fold_views(problem).folded


def measure(problem: Problem, budget_nbytes: int, seconds: float) -> Iterator[str]:
    """Yield the columns of a line, of which each step of the search has ``seconds``."""
    order = order_all(problem)
    try:
        order = order_within(problem, budget_nbytes, 1)
        yield f"{find_overhead(problem, run_order(problem, order).time_ns):8.3f}"
    except NotFoundError:
        yield f"{'-':>8}"
    for keeps_turns in (True, False):
        order, best_s = search(problem, budget_nbytes, order, seconds, keeps_turns=keeps_turns)
        simulation = run_order(problem, order)
        fits = simulation.peak.nbytes <= budget_nbytes
        overhead = f"{find_overhead(problem, simulation.time_ns):8.3f}" if fits else f"{'-':>8}"
        yield f"{overhead} {best_s:6.2f}"
    yield bound(problem, budget_nbytes, seconds)


def search(
    problem: Problem, budget_nbytes: int, start: Order, seconds: float, *, keeps_turns: bool
) -> tuple[Order, float]:
    """Return the best order and when it was found, in seconds."""
    began_s, best_s, best = time.monotonic(), 0.0, None
    tables = make_tables(problem)
    manner = Manner(10**6, keeps_turns=keeps_turns)
    for found in search_locally(tables, budget_nbytes, start, manner):
        if best is None or found < best:
            best, best_s = found, time.monotonic() - began_s
        if time.monotonic() - began_s > seconds:
            break
    return (start if best is None else best.find_order(tables)), best_s


def bound(problem: Problem, budget_nbytes: int, seconds: float) -> str:
    """Return the best bound and when it was found."""
    began_s = time.monotonic()
    best = (problem.costs.total_ns, 0.0)

    def learn(bound_ns: int) -> bool:
        nonlocal best
        best = max(best, (bound_ns, time.monotonic() - began_s), key=lambda pair: pair[0])
        return True

    try:
        bound_frontier(problem, budget_nbytes, Limits(0.0, seconds), learn)
    except NotFoundError:
        return f"{'none':>8} {time.monotonic() - began_s:6.2f}"
    return f"{find_overhead(problem, best[0]):8.3f} {best[1]:6.2f}"


def find_overhead(problem: Problem, time_ns: int) -> float:
    """Return what ``time_ns`` is above the time of every op once, in percent."""
    return 100 * (time_ns / problem.costs.total_ns - 1)


if __name__ == "__main__":
    main()
