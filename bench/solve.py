"""Solve problems and graphs at falling budgets: overhead, bound, gap, seconds, memory.

    python bench/solve.py [--budgets 90,50,117472B,min+5] [--time-limit 60] [--gap 1%]
                          [--strategy auto] [FOLDER|PROBLEM.json|GRAPH.onnx ...]

Without arguments, the full graphs of `graphs/` with counted costs. A budget is a share of the peak
without recompute in percent, bytes (``117472B``), or so many percent above the smallest budget that
10 s find (``min+5``). "5 %" and "1 %" are the seconds after which the gap was as small; "s" are
those from the file to the plan; MiB is the most memory of one process, the tool's or a solver's.
Each row is a process of its own. --layers N adds a GPT training graph of N blocks, --layered N a
random layered graph of N ops.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from blocks import repeat_blocks
from checkmate.engine.min_budget import find_min_budget
from checkmate.engine.solve import run_baseline, solve
from checkmate.errors import CheckmateError
from checkmate.formats.problem_json import read_problem
from checkmate.onnxio.read import read_model
from checkmate.plan import Plan
from checkmate.problem import Problem
from checkmate.profiler.flops import estimate_costs
from checkmate.search.finding import Limits
from checkmate.search.progress import Progress
from checkmate.search.strategies import STRATEGIES
from layered import make_layered

GRAPHS = Path(__file__).parent.parent / "graphs"
MARKS = (0.05, 0.01)
MIN_BUDGET_S = 10.0
TITLES = ("problem", "ops", "budget", "over %", "bound %", "gap %", "5 %", "1 %", "s", "MiB")
ROW = "{:24} {:>5} {:>9} {:>7} {:>8} {:>6} {:>6} {:>6} {:>6} {:>6}  {}"

Make = Callable[[], Problem]


class Stopwatch:
    """A listener that notes when the gap first was as small as each of the marks."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self.reached_s: dict[float, float] = {}

    def tell(self, progress: Progress) -> None:
        """Look at the gap."""
        if progress.time_ns is None:
            return
        for mark in MARKS:
            if progress.time_ns <= progress.bound_ns * (1 + mark):
                self.reached_s.setdefault(mark, self.read())

    def warn(self, text: str) -> None:
        """Print what failed."""
        print(f"    {text}", file=sys.stderr, flush=True)

    def read(self) -> float:
        """Return the seconds since it began."""
        return time.monotonic() - self._began_s

    def show(self, mark: float) -> str:
        """Return when a mark was reached."""
        return f"{self.reached_s[mark]:.1f}" if mark in self.reached_s else "-"


def main() -> None:
    """Print one line a budget."""
    options = parse_options()
    limits = Limits(float(options.gap.removesuffix("%")) / 100, options.time_limit)
    print(ROW.format(*TITLES, ""))
    for name, make in find_sources(options):
        for budget in options.budgets.split(","):
            solve_apart(name, make, budget, limits, options.strategy)


def parse_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--budgets", default="90,80,70,60,50,40,30,20")
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--gap", default="1%")
    parser.add_argument("--strategy", choices=list(STRATEGIES), default="auto")
    parser.add_argument("--layers", type=int, default=0)
    parser.add_argument("--layered", type=int, default=0)
    return parser.parse_args()


def find_sources(options: argparse.Namespace) -> Iterator[tuple[str, Make]]:
    """Yield the names of what to solve, and what makes it."""
    layers, n_ops = options.layers, options.layered
    if layers:
        yield f"gpt2-{layers}", lambda: repeat_blocks(read(GRAPHS / "gpt2-full-b8.onnx"), layers)
    if n_ops:
        yield f"layered-{n_ops}", lambda: make_layered(n_ops, 30, 0)
    for path in options.paths or ([] if layers or n_ops else sorted(GRAPHS.glob("*full*.onnx"))):
        for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
            yield file.stem, lambda file=file: read(file)  # type: ignore[misc]


def read(path: Path) -> Problem:
    """Return the problem that a file holds."""
    if path.suffix == ".json":
        return read_problem(path)
    model = read_model(path, {})
    return Problem(model.graph, estimate_costs(model))


def solve_apart(name: str, make: Make, budget: str, limits: Limits, strategy: str) -> None:
    """Print the line of one budget, from a process of its own; so its memory is known."""
    sys.stdout.flush()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        with os.fdopen(writing, "w") as pipe:
            pipe.write("\t".join(measure(make, budget, limits, strategy)))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        cells = pipe.read().split("\t")
    _, _, usage = os.wait4(child, 0)
    mib = f"{usage.ru_maxrss / 1024:.0f}"
    print(ROW.format(name[:24], *cells[:-1], mib, cells[-1]), flush=True)


def measure(make: Make, budget: str, limits: Limits, strategy: str) -> tuple[str, ...]:
    """Return the cells of one row but for the memory, and in the end what is claimed."""
    watch = Stopwatch()
    problem = make()
    read_s = watch.read()
    head = (str(len(problem.graph.ops)), budget)
    try:
        budget_nbytes = find_budget(problem, budget)
        watch = Stopwatch()
        limits = Limits(limits.gap, limits.time_s, listener=watch)
        plan = solve(problem, budget_nbytes, strategy, limits)
    except CheckmateError as error:
        blank = ("", "", "", "", "")
        return (*head, *blank, f"{watch.read() + read_s:.1f}", f"{type(error).__name__}: {error}")
    seconds = watch.read() + read_s
    claim = plan.claim
    marks = (watch.show(mark) for mark in MARKS)
    says = f"{claim.strategy}, {claim.termination}, {claim.space}"
    return (*head, *describe(problem, plan), *marks, f"{seconds:.1f}", says)


def find_budget(problem: Problem, text: str) -> int:
    """Return the bytes that a budget stands for."""
    if text.endswith("B"):
        return int(text[:-1])
    if text.startswith("min+"):
        smallest = find_min_budget(problem, Limits(0.0, MIN_BUDGET_S)).nbytes
        return int(smallest * (1 + float(text.removeprefix("min+")) / 100))
    return run_baseline(problem).peak.nbytes * int(text) // 100


def describe(problem: Problem, plan: Plan) -> tuple[str, str, str]:
    """Return overhead, bound and gap, in percent."""
    total_ns = problem.costs.total_ns
    overhead, bound = (100 * (ns / total_ns - 1) for ns in (plan.time_ns, plan.claim.bound_ns))
    return f"{overhead:.3f}", f"{bound:.3f}", f"{100 * plan.gap:.2f}"


if __name__ == "__main__":
    main()
