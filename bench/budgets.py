"""Solve the tiny graphs at several budgets, run both graphs each time, compare.

    python bench/budgets.py [--time-limit 60s] [NAME ...]

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

from checkmate.arena import count_budget_nbytes
from checkmate.folding import fold_views
from checkmate.formats.costs_json import read_costs, resolve_costs
from checkmate.heuristics.greedy import find_smallest_budget
from checkmate.liveness import insert_frees
from checkmate.onnxio.read import read_model
from checkmate.onnxio.storage import find_arena_rules
from checkmate.problem import Problem
from checkmate.search.strategies import GREEDY_EFFORT

GRAPHS = Path(__file__).parent.parent / "graphs"
BATCHES = {"vgg16": 512, "mobilenetv1": 512, "resnet50": 256, "unet": 256, "gpt2": 512}
SHARES = (90, 75, 60)
MARGIN = 1.02
HEADER = (
    f"{'graph':12} {'budget':>14} {'%':>6} {'over %':>7} {'bound %':>7} {'s':>6}"
    f" {'plan':>8} {'run':>8} {'ratio':>6} {'before':>8} {'time %':>7}  outputs, order"
)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--time-limit", default="60s")
    parser.add_argument("names", nargs="*", default=list(BATCHES))
    arguments = parser.parse_args()
    print(HEADER)
    for name in arguments.names:
        with tempfile.TemporaryDirectory() as folder:
            trial = Trial(name, Path(folder), arguments.time_limit)
            budgets = {f"{share}%": f"{share}%" for share in SHARES}
            budgets["smallest +2%"] = f"{int(trial.find_smallest() * MARGIN)}B"
            for label, budget in budgets.items():
                print(f"{name:12} {label:>14} {trial.measure(budget)}", flush=True)


class Trial:
    """One graph at one batch size, profiled once."""

    def __init__(self, name: str, folder: Path, time_limit: str) -> None:
        self._model = GRAPHS / f"{name}-tiny-bN.onnx"
        self._batch, self._time_limit = BATCHES[name], time_limit
        self._costs, self._schedule = folder / "costs.json", folder / "schedule.json"
        self._run("profile", "--dim", f"N={self._batch}", "-o", str(self._costs))

    def find_smallest(self) -> int:
        """Return the budget of the smallest schedule that the greedy reaches, in bytes."""
        model = read_model(self._model, {"N": self._batch})
        costs = resolve_costs(read_costs(self._costs), model.graph)
        problem = Problem(model.graph, costs, find_arena_rules(model, "cpu"))
        folding = fold_views(problem)
        _, order = find_smallest_budget(folding.folded, GREEDY_EFFORT)
        schedule = insert_frees(model.graph, folding.unfold(order))
        return count_budget_nbytes(problem, schedule)

    def measure(self, budget: str) -> str:
        """Return one line: a solve, then a run of both graphs."""
        solved = self._run(
            "solve", "--dim", f"N={self._batch}", "--budget", budget, "--costs", str(self._costs),
            "--time-limit", self._time_limit, "-o", str(self._schedule), "--json",
        )  # fmt: skip
        if isinstance(solved, str):
            return solved
        ran = self._run(
            "check", str(self._schedule), "--costs", str(self._costs), "--run", "--json"
        )
        return ran if isinstance(ran, str) else describe(solved, ran)

    def _run(self, command: str, *arguments: str) -> dict[str, int] | str:
        """Return what the command prints, or its error."""
        program = [sys.executable, "-m", "checkmate", command, str(self._model), *arguments]
        done = subprocess.run(program, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"exit {done.returncode}: {done.stderr.strip().splitlines()[-2:]}"
        return dict(json.loads(done.stdout)) if done.stdout else {}


def describe(solved: dict[str, int], ran: dict[str, int]) -> str:
    """Return the figures of one budget as one line."""
    base_ns, peak = solved["baseline_time_ns"], solved["peak_nbytes"]
    measured, before = ran["measured_peak_nbytes"], ran["measured_baseline_peak_nbytes"]
    overhead, bound = (100 * (solved[key] / base_ns - 1) for key in ("time_ns", "bound_ns"))
    slower = 100 * (ran["measured_time_ns"] / ran["measured_baseline_time_ns"] - 1)
    share = 100 * solved["budget_nbytes"] / solved["baseline_peak_nbytes"]
    return (
        f"{share:6.1f} {overhead:7.2f} {bound:7.2f} {solved['seconds']:6.1f}"
        f" {peak / 2**20:8.2f} {measured / 2**20:8.2f} {measured / peak:6.3f}"
        f" {before / 2**20:8.2f} {slower:7.2f}"
        f"  {'equal' if ran['outputs_equal'] else 'DIFFERENT'},"
        f" {'equal' if ran['order_equal'] else 'DIFFERENT'}"
    )


if __name__ == "__main__":
    main()
