"""How near the best the greedy search comes, how small a budget it reaches, and how fast.

    python bench/greedy.py [--effort 16] [--batch 4] FOLDER|PROBLEM.json|GRAPH.onnx ...

Budgets are shares of the peak without recompute. Known overheads are of schedules proved to be
within 1 % of the best, or the best known; "-" where none is. Graphs are read with counted costs.
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
from checkmate.heuristics.greedy import find_smallest_budget, order_within
from checkmate.heuristics.keep_all import order_all
from checkmate.heuristics.tables import find_node_bound, make_tables
from checkmate.liveness import insert_frees
from checkmate.onnxio.read import read_model
from checkmate.problem import Problem
from checkmate.profiler.flops import estimate_costs
from checkmate.simulate import simulate

SHARES = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)
KNOWN = {
    "vgg16-b256-v100": (1.97,),
    "unet-b32-v100": (1.13, 1.98, 2.97, 4.45, 6.97, 13.11),
    "mobilenet-b512-v100": (0.18, 0.37, 0.66, 1.07, 1.78, 2.59, 3.98),
    "resnet50-b256-v100": (0.12, 0.31, 0.60, 1.04, 1.62, 2.36, 3.68),
    "random-layered-n100": (0.789, 2.296),
    "random-layered-n250": (0.904, 4.54),
}
"""Overhead in percent, per share in turn."""


def main() -> None:
    """Print one line a budget, and one with the smallest budget of each problem."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--effort", type=int, default=16)
    parser.add_argument("--batch", type=int, default=4)
    options = parser.parse_args()
    print(f"{'problem':26} {'ops':>5} {'budget':>7} {'overhead':>9} {'known':>7} {'seconds':>8}")
    for path in find_files(options.paths):
        problem = fold_views(read(path, options.batch)).folded
        for line in measure(problem, options.effort):
            print(f"{path.stem:26} {len(problem.graph.ops):5} {line}", flush=True)


def find_files(paths: list[Path]) -> Iterator[Path]:
    """Yield the files in ``paths``, those of folders in the order of their names."""
    for path in paths:
        yield from sorted(path.glob("*.json")) if path.is_dir() else [path]


def read(path: Path, batch: int) -> Problem:
    """Return the problem that a file holds."""
    if path.suffix == ".json":
        return read_problem(path)
    model = read_model(path, {"N": batch} if path.stem.endswith("bN") else {})
    return Problem(model.graph, estimate_costs(model))


def measure(problem: Problem, effort: int) -> Iterator[str]:
    """Yield the lines of one problem."""
    peak_nbytes = simulate(problem, insert_frees(problem.graph, order_all(problem))).peak.nbytes
    bound_nbytes = find_node_bound(make_tables(problem))
    known = dict(zip(SHARES, KNOWN.get(problem.graph.name, ()), strict=False))
    for share in SHARES:
        budget_nbytes = int(share * peak_nbytes)
        if budget_nbytes >= bound_nbytes:
            started = time.perf_counter()
            overhead = find_overhead(problem, budget_nbytes, effort)
            seconds = time.perf_counter() - started
            yield f"{share:7.1%} {overhead:>9} {known.get(share, '-'):>7} {seconds:8.2f}"
    started = time.perf_counter()
    smallest_nbytes, order = find_smallest_budget(problem, effort)
    seconds = time.perf_counter() - started
    overhead = measure_overhead(problem, order)
    yield (
        f"{smallest_nbytes / peak_nbytes:7.1%} {overhead:>9} {'-':>7} {seconds:8.2f}"
        f"  smallest found; one op alone needs {bound_nbytes / peak_nbytes:.1%}"
    )


def find_overhead(problem: Problem, budget_nbytes: int, effort: int) -> str:
    """Return how much longer the order found for a budget takes, in percent."""
    try:
        return measure_overhead(problem, order_within(problem, budget_nbytes, effort))
    except NotFoundError:
        return "none"


def measure_overhead(problem: Problem, order: Sequence[OpId]) -> str:
    """Return how much longer ``order`` takes than running each op once, in percent."""
    time_ns = simulate(problem, insert_frees(problem.graph, order)).time_ns
    return f"{100 * (time_ns / problem.costs.total_ns - 1):.2f}"


if __name__ == "__main__":
    main()
