"""The search for chains of stages: overhead, bound, gap and seconds.

    python bench/stages.py [--gap 0.01] [--time-limit 60] [FOLDER|PROBLEM.json|GRAPH.onnx ...]

Without arguments, the full graphs of `graphs/` with counted costs. Budgets are shares of the peak
without recompute; MiB is the most memory of this process, or of the solver's, so far.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator
from pathlib import Path

from checkmate.errors import CheckmateError
from checkmate.folding import fold_views
from checkmate.formats.problem_json import read_problem
from checkmate.heuristics.keep_all import order_all
from checkmate.liveness import insert_frees
from checkmate.onnxio.read import read_model
from checkmate.plan import certify
from checkmate.problem import Problem
from checkmate.profiler.flops import estimate_costs
from checkmate.search.finding import Limits
from checkmate.search.stages import solve_stages
from checkmate.simulate import simulate

GRAPHS = Path(__file__).parent.parent / "graphs"
SHARES = {".json": (90, 80, 70, 60, 50, 40, 30), ".onnx": (80, 75, 60, 50)}


def main() -> None:
    """Print one line a budget."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("paths", nargs="*", type=Path, default=sorted(GRAPHS.glob("*full*.onnx")))
    parser.add_argument("--gap", type=float, default=0.01)
    parser.add_argument("--time-limit", type=float, default=60.0)
    options = parser.parse_args()
    limits = Limits(options.gap, options.time_limit)
    titles = ("problem", "ops", "budget", "over %", "bound %", "gap %", "s", "MiB")
    print("{:24} {:>5} {:>6} {:>7} {:>8} {:>6} {:>6} {:>6}".format(*titles))
    for path in find_files(options.paths):
        problem = fold_views(read(path)).folded
        peak_nbytes = simulate(problem, insert_frees(problem.graph, order_all(problem))).peak.nbytes
        for share in SHARES[path.suffix]:
            line = measure(problem, peak_nbytes * share // 100, limits)
            head = f"{path.stem:24} {len(problem.graph.ops):5} {share:5}%"
            print(f"{head} {line} {find_most_mib():6.0f}", flush=True)


def find_files(paths: list[Path]) -> Iterator[Path]:
    """Yield the files in ``paths``, those of folders in the order of their names."""
    for path in paths:
        yield from sorted(path.glob("*.json")) if path.is_dir() else [path]


def read(path: Path) -> Problem:
    """Return the problem that a file holds."""
    if path.suffix == ".json":
        return read_problem(path)
    model = read_model(path, {})
    return Problem(model.graph, estimate_costs(model))


def measure(problem: Problem, budget_nbytes: int, limits: Limits) -> str:
    """Return overhead, bound, gap and seconds, or why there is no schedule."""
    began_s = time.monotonic()
    try:
        finding = solve_stages(problem, budget_nbytes, limits)
    except CheckmateError as error:
        return f"{type(error).__name__:30} {time.monotonic() - began_s:6.1f}"
    seconds = time.monotonic() - began_s
    schedule = insert_frees(problem.graph, finding.order)
    plan = certify(problem, schedule, budget_nbytes, finding.claim)
    total_ns = problem.costs.total_ns
    overhead, bound = (100 * (ns / total_ns - 1) for ns in (plan.time_ns, plan.claim.bound_ns))
    return f"{overhead:7.3f} {bound:8.3f} {100 * plan.gap:6.2f} {seconds:6.1f}"


def find_most_mib() -> float:
    """Return the most memory that this process or one of its solvers took so far."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(one).ru_maxrss for one in who) / 1024


if __name__ == "__main__":
    main()
