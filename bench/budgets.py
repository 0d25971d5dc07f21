"""Solve the tiny graphs at several budgets, run both graphs each time, compare.

    python bench/budgets.py [--costs auto|flops] [NAME ...]

One line a budget: overhead and bound in percent, seconds of `checkmate solve`; the peak of the plan
and of the run in MiB and their ratio; time of the rewritten graph against the original.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from checkmate.engine.solve import run_baseline
from checkmate.folding import fold_views
from checkmate.heuristics.greedy import find_smallest_budget
from checkmate.onnxio.read import read_model
from checkmate.problem import Problem
from checkmate.profiler.flops import estimate_costs

GRAPHS = Path(__file__).parent.parent / "graphs"
BATCHES = {"vgg16": 512, "mobilenetv1": 512, "resnet50": 256, "unet": 256, "gpt2": 512}
SHARES = (90, 75, 60)
MARGIN = 1.02
HEADER = (
    f"{'graph':12} {'budget':>14} {'over %':>7} {'bound %':>7} {'s':>6}"
    f" {'plan':>8} {'run':>8} {'ratio':>6} {'before':>8} {'time %':>7}  outputs, order"
)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--costs", default="auto")
    parser.add_argument("--time-limit", default="60s")
    parser.add_argument("names", nargs="*", default=list(BATCHES))
    arguments = parser.parse_args()
    print(HEADER)
    for name in arguments.names:
        smallest = find_smallest(name)
        budgets = {f"{share}%": f"{share}%" for share in SHARES}
        budgets["smallest +2%"] = f"{int(smallest * MARGIN)}B"
        for label, budget in budgets.items():
            line = measure(name, budget, arguments.costs, arguments.time_limit)
            print(f"{name:12} {label:>14} {line}", flush=True)


def find_smallest(name: str) -> int:
    """Return the smallest budget that the greedy reaches, in bytes."""
    model = read_model(GRAPHS / f"{name}-tiny-bN.onnx", {"N": BATCHES[name]})
    problem = Problem(model.graph, estimate_costs(model))
    nbytes, _ = find_smallest_budget(fold_views(problem).folded, 16)
    print(f"{name}: smallest budget {100 * nbytes / run_baseline(problem).peak.nbytes:.1f} %")
    return nbytes


def measure(name: str, budget: str, costs: str, time_limit: str) -> str:
    """Return one line: a solve, then a run of both graphs."""
    model = str(GRAPHS / f"{name}-tiny-bN.onnx")
    with tempfile.TemporaryDirectory() as folder:
        schedule = f"{folder}/s.json"
        solved = run(
            "solve", model, "--dim", f"N={BATCHES[name]}", "--budget", budget, "--costs", costs,
            "--time-limit", time_limit, "-o", schedule, "--json",
        )  # fmt: skip
        if isinstance(solved, str):
            return solved
        ran = run("check", model, schedule, "--run", "--json")
    if isinstance(ran, str):
        return ran
    base_ns, peak = solved["baseline_time_ns"], solved["peak_nbytes"]
    measured, before = ran["measured_peak_nbytes"], ran["measured_baseline_peak_nbytes"]
    overhead, bound = (100 * (solved[key] / base_ns - 1) for key in ("time_ns", "bound_ns"))
    slower = 100 * (ran["measured_time_ns"] / ran["measured_baseline_time_ns"] - 1)
    return (
        f"{overhead:7.2f} {bound:7.2f} {solved['seconds']:6.1f}"
        f" {peak / 2**20:8.2f} {measured / 2**20:8.2f} {measured / peak:6.3f}"
        f" {before / 2**20:8.2f} {slower:7.2f}"
        f"  {'equal' if ran['outputs_equal'] else 'DIFFERENT'},"
        f" {'equal' if ran['order_equal'] else 'DIFFERENT'}"
    )


def run(*arguments: str) -> dict[str, int] | str:
    """Return what the command prints, or its error."""
    command = [sys.executable, "-m", "checkmate", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"exit {done.returncode}: {done.stderr.strip().splitlines()[-2:]}"
    return dict(json.loads(done.stdout))


if __name__ == "__main__":
    main()
