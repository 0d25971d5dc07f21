"""Does more budget ever give a slower plan? 50 budgets of a few graphs, each solved alone.

    python bench/monotone.py [--gap 0.01] [--time-limit 10] [--n 50] [PROBLEM.json|GRAPH.onnx ...]

Prints, per graph, how many neighbours are inverted, by how much at most, and the same when each
budget begins from the plan of the one below it.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

from checkmate.engine.solve import Hints, run_baseline, solve
from checkmate.errors import CheckmateError
from checkmate.folding import fold_views
from checkmate.graph import OpId
from checkmate.problem import Problem
from checkmate.search.finding import Limits
from solve import GRAPHS, read

NAMES = ("vgg16-full-b256", "unet-full-b32", "mobilenetv1-full-b512")


def main() -> None:
    """Print one line a graph and way."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    paths = [GRAPHS / f"{name}.onnx" for name in NAMES]
    parser.add_argument("paths", nargs="*", type=Path, default=paths)
    parser.add_argument("--gap", type=float, default=0.01)
    parser.add_argument("--time-limit", type=float, default=10.0)
    parser.add_argument("--n", type=int, default=50)
    options = parser.parse_args()
    limits = Limits(options.gap, options.time_limit)
    for path in options.paths:
        problem = read(path)
        for chained in (False, True):
            times = measure(problem, options.n, limits, chained=chained)
            pairs = list(itertools.pairwise(times))
            worse = [after / before - 1 for before, after in pairs if after > before]
            way = "from below" if chained else "alone"
            most = 100 * max(worse, default=0)
            print(f"{path.stem:24} {way:10} {len(times):3} plans, {len(worse):3} inversions,"
                  f" at most {most:.3f} %", flush=True)  # fmt: skip


def measure(problem: Problem, n: int, limits: Limits, *, chained: bool) -> list[int]:
    """Return the times of the plans, the smallest budget first."""
    peak_nbytes = run_baseline(problem).peak.nbytes
    folding = fold_views(problem)
    new_ids = {old: OpId(new) for new, old in enumerate(folding.kept)}
    times: list[int] = []
    order: tuple[OpId, ...] = ()
    for step in range(n):
        budget_nbytes = peak_nbytes * (50 + 50 * step // n) // 100
        try:
            plan = solve(problem, budget_nbytes, "auto", limits, Hints(order))
        except CheckmateError:
            continue
        times.append(plan.time_ns)
        if chained:
            order = tuple(new_ids[op] for op in plan.schedule.order if op in new_ids)
    return times


if __name__ == "__main__":
    main()
