"""Ours against the paper's program, the heuristics and an interval model, in one run.

    python bench/versus.py [--time-limit 60] [--budgets 90,70,50] [--gap 1%]
                           [--strategies auto,intervals] [--side-by-side] [--layered N]
                           [PROBLEM.json|GRAPH.onnx ...]

For each problem and budget (a share of the peak without recompute in percent, or bytes as
``132156B``), a line per strategy: overhead in percent, the proven bound, seconds, and as ratios the
time of its schedule and its seconds over those of `auto`. ``exact`` is the paper's program in the
same HiGHS; ``intervals`` is `bench/interval_model.py` in CP-SAT, which needs or-tools and is
left out, with a note, where that is missing. Every schedule is judged by the same simulator.
With --side-by-side the strategies of a budget run at the same time, each in a process and on a
processor of its own; --layered N adds two random layered graphs of N ops.
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from checkmate.engine.solve import run_baseline, solve
from checkmate.errors import CheckmateError
from checkmate.folding import fold_views
from checkmate.formats.problem_json import read_problem
from checkmate.liveness import insert_frees
from checkmate.onnxio.read import read_model
from checkmate.problem import Problem
from checkmate.profiler.flops import estimate_costs
from checkmate.search.finding import Limits
from checkmate.search.strategies import STRATEGIES
from checkmate.simulate import simulate
from layered import make_layered

GRAPHS = Path(__file__).parent.parent / "graphs"
NAMES = ("vgg16-full-b256.onnx", "unet-full-b32.onnx")


@dataclass(frozen=True, slots=True)
class Result:
    """What one strategy did."""

    time_ns: int
    bound_ns: float
    note: str
    """The space of the bound, and why the search ended."""


@dataclass(frozen=True, slots=True)
class Run:
    """How an attempt went."""

    result: Result | str
    """Or what went wrong."""
    seconds: float


Attempt = Callable[[Problem, int, Limits], Result]


def main() -> None:
    """Print a block of lines per problem and budget."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds per strategy")
    parser.add_argument("--budgets", default="90,70,50")
    parser.add_argument("--gap", default="1%")
    parser.add_argument("--strategies", default="", help="names, comma separated; empty: all")
    parser.add_argument("--side-by-side", action="store_true")
    parser.add_argument("--layered", type=int, default=0)
    parser.add_argument("paths", nargs="*", type=Path)
    options = parser.parse_args()
    limits = Limits(float(options.gap.removesuffix("%")) / 100, options.time_limit)
    attempts = make_attempts()
    names = options.strategies.split(",") if options.strategies else list(attempts)
    chosen = {name: attempts[name] for name in ["auto", *(n for n in names if n != "auto")]}
    run_all = run_at_once if options.side_by_side else run_in_turn
    for problem in read_all(options.paths, options.layered):
        peak_nbytes = run_baseline(problem).peak.nbytes
        for budget in options.budgets.split(","):
            nbytes = int(budget[:-1]) if budget.endswith("B") else peak_nbytes * int(budget) // 100
            print(f"{problem.graph.name}, {len(problem.graph.ops)} ops, {budget}: {nbytes:,} B")
            for line in compare(problem, run_all(chosen, problem, nbytes, limits)):
                print(line, flush=True)


def read_all(paths: list[Path], n_layered: int) -> Iterator[Problem]:
    """Yield the problems that are asked for."""
    if n_layered:
        yield from (make_layered(n_layered, 30, seed) for seed in (0, 1))
    elif not paths:
        paths = [GRAPHS / name for name in NAMES]
    yield from map(read, paths)


def make_attempts() -> dict[str, Attempt]:
    """Return every strategy by name, and the interval model where or-tools is installed."""
    attempts: dict[str, Attempt] = {name: make_attempt(name) for name in STRATEGIES}
    if importlib.util.find_spec("ortools") is None:
        print("or-tools is not installed: no interval model")
    else:
        attempts["intervals"] = attempt_intervals
    return attempts


def read(path: Path) -> Problem:
    """Return the problem that a file holds."""
    if path.suffix == ".json":
        return read_problem(path)
    model = read_model(path, {})
    return Problem(model.graph, estimate_costs(model))


def make_attempt(name: str) -> Attempt:
    """Return a strategy of ours as an attempt."""

    def attempt(problem: Problem, budget_nbytes: int, limits: Limits) -> Result:
        plan = solve(problem, budget_nbytes, name, limits)
        claim = plan.claim
        return Result(plan.time_ns, claim.bound_ns, f"{claim.termination}, {claim.space}")

    return attempt


def attempt_intervals(problem: Problem, budget_nbytes: int, limits: Limits) -> Result:
    """Solve the interval model of the graph without its views."""
    from interval_model import Effort, solve_intervals  # noqa: PLC0415

    folding = fold_views(problem)
    answer = solve_intervals(folding.folded, budget_nbytes, Effort(limits.time_s or 60.0))
    if answer.order is None:
        raise CheckmateError(f"CP-SAT: {answer.status}")
    schedule = insert_frees(problem.graph, folding.unfold(answer.order))
    simulation = simulate(problem, schedule)
    if simulation.peak.nbytes > budget_nbytes:
        raise CheckmateError(f"its schedule takes {simulation.peak.nbytes:,} B")
    return Result(simulation.time_ns, answer.bound_ns, f"{answer.status}, two computes an op")


def run_in_turn(
    attempts: Mapping[str, Attempt], problem: Problem, budget_nbytes: int, limits: Limits
) -> Iterator[tuple[str, Run]]:
    """Yield how each attempt went, one after the other."""
    for name, attempt in attempts.items():
        began_s = time.monotonic()
        try:
            result: Result | str = attempt(problem, budget_nbytes, limits)
        except CheckmateError as error:
            result = error.message
        yield name, Run(result, time.monotonic() - began_s)


def run_at_once(
    attempts: Mapping[str, Attempt], problem: Problem, budget_nbytes: int, limits: Limits
) -> Iterator[tuple[str, Run]]:
    """Yield how each attempt went, all at the same time."""
    fork = multiprocessing.get_context("fork")
    runs = fork.Queue()
    cpus = sorted(os.sched_getaffinity(0))

    def run_apart(name: str, cpu: int) -> None:
        os.sched_setaffinity(0, {cpu})
        for run in run_in_turn({name: attempts[name]}, problem, budget_nbytes, limits):
            runs.put(run)

    children = [
        fork.Process(target=run_apart, args=(name, cpus[place % len(cpus)]))
        for place, name in enumerate(attempts)
    ]
    for child in children:
        child.start()
    found = dict(runs.get() for _ in children)
    for child in children:
        child.join()
    yield from ((name, found[name]) for name in attempts)


def compare(problem: Problem, runs: Iterator[tuple[str, Run]]) -> Iterator[str]:
    """Yield a line per attempt; the first one's figures are what ratios refer to."""
    base_ns = problem.costs.total_ns
    ours: tuple[int, float] | None = None
    for name, run in runs:
        result, seconds = run.result, run.seconds
        if isinstance(result, str):
            yield f"  {name:18} {seconds:8.1f} s  {result}"
            continue
        ours = ours or (result.time_ns, seconds)
        overhead, bound = (100 * (ns / base_ns - 1) for ns in (result.time_ns, result.bound_ns))
        yield (
            f"  {name:18} {seconds:8.1f} s  {overhead:8.3f} % (bound {bound:7.3f} %)"
            f"  time x {result.time_ns / ours[0]:.4f}, seconds x {seconds / ours[1]:.1f}"
            f"  {result.note}"
        )


if __name__ == "__main__":
    main()
