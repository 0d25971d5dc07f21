"""Solve the full graphs with counted costs; seconds and memory of the tool.

python bench/full.py [--time-limit 60s] [NAME ...]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

GRAPHS = Path(__file__).parent.parent / "graphs"
BUDGETS = ("90%", "80%", "60%", "50%")


def main() -> None:
    """Print one line a graph and budget."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--time-limit", default="60s")
    parser.add_argument("names", nargs="*", default=sorted(p.stem for p in GRAPHS.glob("*full*")))
    arguments = parser.parse_args()
    titles = ("graph", "budget", "over %", "bound %", "s", "MiB", "strategy")
    print("{:24} {:>6} {:>7} {:>8} {:>7} {:>9}  {}".format(*titles))
    for name in arguments.names:
        for budget in BUDGETS:
            print(f"{name:24} {budget:>6} {solve(name, budget, arguments.time_limit)}", flush=True)


def solve(name: str, budget: str, time_limit: str) -> str:
    """Return one line: overhead, bound, seconds, most memory of the process and its children."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "checkmate", "solve", str(GRAPHS / f"{name}.onnx"),
            "--budget", budget, "--costs", "flops", "--time-limit", time_limit, "--json",
            "-o", f"{folder}/s.json", "--onnx", f"{folder}/m.onnx",
        ]  # fmt: skip
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        output, errors = process.stdout.read(), process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
    tool = f"{usage.ru_maxrss / 1024:9.0f}"
    if status:
        lines = errors.strip().splitlines()
        return f"exit {os.waitstatus_to_exitcode(status)} {tool} MiB: {' / '.join(lines[-2:])}"
    plan = json.loads(output)
    base_ns, search = plan["baseline_time_ns"], plan["search"]
    overhead, bound = (100 * (plan[key] / base_ns - 1) for key in ("time_ns", "bound_ns"))
    return (
        f"{overhead:7.2f} {bound:8.2f} {plan['seconds']:7.1f} {tool}"
        f"  {search['strategy']}, {search['termination']}"
    )


if __name__ == "__main__":
    main()
