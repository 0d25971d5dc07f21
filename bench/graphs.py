"""Plan every model of a folder: its peak, and what fitting a budget costs, or why it is refused.

python bench/graphs.py FOLDER [--budget 60%] [--dim N=4] [--time-limit 20s] [--run] [--match TEXT]

A budget below the smallest that is known to work is raised to that; the table shows it. Symbolic
dimensions that --dim does not bind are 4. With --run, costs are measured, which counts workspace,
and `check --run` runs both graphs.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from checkmate.onnxio.dims import find_dims
from checkmate.onnxio.load import load_proto
from checkmate.units import format_nbytes

_ROW = "{:46} {:>6} {:>11} {:>7} {:>7} {:>8} {:>6}  {}"
_SMALLEST = re.compile(r"smallest budget known to work(?:, with [^,]*,)? is ([0-9,]+) B")

_MAX_RAISES = 3
"""Of the budget: what is known to work without the arena may not work in it."""


def main() -> None:
    """Print one line a model, and the sums."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--budget", default="60%")
    parser.add_argument("--dim", action="append", default=[])
    parser.add_argument("--time-limit", default="20s")
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--match", default="")
    arguments = parser.parse_args()
    print(_ROW.format("file", "ops", "peak", "budget", "plan", "over", "s", "run"))
    ends: Counter[str] = Counter()
    for path in sorted(arguments.folder.rglob("*.onnx")):
        name = str(path.relative_to(arguments.folder))
        if arguments.match in name:
            line, end = describe(path, arguments)
            ends[end] += 1
            print(f"{name:46} {line}", flush=True)
    print(", ".join(f"{end}: {count}" for end, count in sorted(ends.items())))


def describe(path: Path, arguments: argparse.Namespace) -> tuple[str, str]:
    """Return the line of one model, and how it ended."""
    with tempfile.TemporaryDirectory() as folder:
        schedule = Path(folder) / "s.json"
        costs = "auto" if arguments.run else "flops"
        options = ["--costs", costs, "--time-limit", arguments.time_limit, "-o", str(schedule)]
        for dim in _bind_dims(path, arguments.dim):
            options += ["--dim", dim]
        solved = _solve(path, arguments.budget, options)
        if solved.returncode:
            return _name_error(solved), f"refused ({solved.returncode})"
        plan = json.loads(solved.stdout)
        run, end = _check(path, schedule) if arguments.run else ("", "planned")
    peak, base = plan["peak_nbytes"], plan["baseline_peak_nbytes"]
    budget, overhead = plan["budget_nbytes"] / base, plan["time_ns"] / plan["baseline_time_ns"] - 1
    cells = (
        plan["graph"]["ops"], format_nbytes(base), f"{budget:.0%}", f"{peak / base:.0%}",
        f"{overhead:+.2%}", f"{plan['seconds']:.1f}", run,
    )  # fmt: skip
    return _ROW.format("", *cells)[47:], end


def _bind_dims(path: Path, asked: list[str]) -> list[str]:
    """Return what to bind, of ``asked`` only what the model has."""
    values = dict(dim.rsplit("=", 1) for dim in asked)
    try:
        known = find_dims(load_proto(path).graph)
    except Exception:  # the command says it better
        return []
    return [f"{name}={values.get(name, 4)}" for name in known]


def _solve(path: Path, budget: str, options: list[str]) -> subprocess.CompletedProcess[str]:
    solved = _run("solve", str(path), "--budget", budget, "--json", *options)
    for _ in range(_MAX_RAISES):
        smallest = _SMALLEST.search(solved.stderr)
        if solved.returncode not in (4, 5) or smallest is None:
            break
        number = smallest[1].replace(",", "")
        solved = _run("solve", str(path), "--budget", f"{number}B", "--json", *options)
    return solved


def _check(path: Path, schedule: Path) -> tuple[str, str]:
    checked = _run("check", str(path), str(schedule), "--run", "--json")
    if checked.returncode:
        return _name_error(checked), f"planned, check {checked.returncode}"
    ratio = "no meter"
    document = json.loads(checked.stdout)
    if document["measured_peak_nbytes"] is not None:
        planned = json.loads(schedule.read_text())["peak_nbytes"]
        ratio = f"peak {document['measured_peak_nbytes'] / planned:.0%} of plan"
    return f"equal, {ratio}", "planned and run"


def _name_error(process: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in process.stderr.splitlines() if line.startswith("error:")]
    return f"exit {process.returncode}: {(lines or ['error: nothing said'])[-1][7:]}"


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "checkmate", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    main()
