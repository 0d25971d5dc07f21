"""Prove the CUDA paths on a machine that has a GPU, in minutes; one JSON report on stdout.

    python bench/gpu_check.py [--provider cuda|cpu]

For three graphs: profile the ops, solve at several budgets, run the original and the rewritten
graph, compare numbers, order, peak and time. `--provider cpu` goes through the same steps without
a GPU. Says so and exits 0 where CUDA is asked for and not usable.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from checkmate.errors import DeviceError
from checkmate.runtime.device import probe_device

GRAPHS = Path(__file__).parent.parent / "graphs"
BATCHES = {"resnet50": 256, "unet": 256, "gpt2": 512}
BUDGETS = ("80%", "60%")


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--provider", choices=("cuda", "cpu"), default="cuda")
    provider = parser.parse_args().provider
    try:
        device = probe_device(provider)
    except DeviceError as error:
        print(f"no GPU check here: {error.message}; {error.hint}", file=sys.stderr)
        return
    started = time.monotonic()
    rows = [row for name in BATCHES for row in check(name, provider)]
    report = {
        "device": device.name,
        "provider": device.provider,
        "memory_nbytes": device.nbytes,
        "onnxruntime": device.onnxruntime,
        "seconds": round(time.monotonic() - started, 1),
        "rows": rows,
        "passed": all(row["exit_code"] == 0 for row in rows),
    }
    print(json.dumps(report, indent=1))
    sys.exit(0 if report["passed"] else 1)


def check(name: str, provider: str) -> list[dict[str, object]]:
    """Return one row per step: its exit code, its figures, its error."""
    model, dim = str(GRAPHS / f"{name}-tiny-bN.onnx"), f"N={BATCHES[name]}"
    with tempfile.TemporaryDirectory() as folder:
        costs, schedule = f"{folder}/costs.json", f"{folder}/schedule.json"
        profile = ("profile", model, "--dim", dim, "--provider", provider, "--whole", "-o", costs)
        rows = [run(name, *profile)]
        for budget in BUDGETS if rows[0]["exit_code"] == 0 else ():
            solve = ("solve", model, "--dim", dim, "--budget", budget, "--costs", costs)
            rows.append(run(name, *solve, "-o", schedule))
            if rows[-1]["exit_code"] == 0:
                checked = ("check", model, schedule, "--costs", costs, "--run")
                rows.append(run(name, *checked, "--provider", provider))
    return rows


def run(name: str, *arguments: str) -> dict[str, object]:
    """Run one command; return its step, exit code, figures and last error lines."""
    started = time.monotonic()
    command = [sys.executable, "-m", "checkmate", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    figures: dict[str, object] = json.loads(done.stdout) if done.stdout else {}
    return {
        "graph": name,
        "step": arguments[0],
        "exit_code": done.returncode,
        "seconds": round(time.monotonic() - started, 1),
        "errors": done.stderr.strip().splitlines()[-2:] if done.returncode else [],
        "figures": figures,
    }


if __name__ == "__main__":
    main()
