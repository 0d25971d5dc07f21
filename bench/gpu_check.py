"""Prove the CUDA paths on a machine that has a GPU, in minutes; one JSON report on stdout.

    python bench/gpu_check.py [--provider cuda|cpu] [--small]

For three graphs: ops without a kernel, profile against the whole run, solve at two budgets, run the
original and the rewritten graph, compare numbers, order, predicted and measured peak and time; the
smallest arenas that work, of one region and of regions by request, against the predicted one.
Then, once each: what the device holds beside the arena, fences against the order by priority, both
forms of a convolution's weight gradient, dropout with a seed. `--provider cpu` goes through the
same steps without a GPU, `--small` with small batches. No step starts after seven minutes. Says so
and exits 0 where CUDA is asked for and not usable; exits 1 when a step fails.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import gpu_numbers
import gpu_steps
from checkmate.errors import DeviceError
from checkmate.runtime.device import Device, probe_device

GRAPHS = Path(__file__).parent.parent / "graphs"
BATCHES = {"gpt2": 512, "resnet50": 256, "unet": 256}
SMALL_BATCH = 16
BUDGETS = ("80%", "60%")
LAST_START_S = 420

Figures = dict[str, object]


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--provider", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()
    try:
        device = probe_device(arguments.provider)
    except DeviceError as error:
        print(f"no GPU check here: {error.message}; {error.hint}", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as folder:
        check = Check(device, Path(folder), arguments.small)
        check.run()
    report = {
        "device": device.name,
        "provider": device.provider,
        "memory_nbytes": device.nbytes,
        "onnxruntime": device.onnxruntime,
        "seconds": round(time.monotonic() - check.start, 1),
        "passed": all(row["passed"] for row in check.rows),
        "rows": check.rows,
    }
    print(json.dumps(report, indent=1))
    sys.exit(0 if report["passed"] else 1)


class Check:
    """All steps; a row of the report for each, whatever becomes of it."""

    def __init__(self, device: Device, folder: Path, is_small: bool) -> None:
        self.start = time.monotonic()
        self.rows: list[Figures] = []
        self._device = device
        self._folder = folder
        self._batches = dict.fromkeys(BATCHES, SMALL_BATCH) if is_small else BATCHES

    def run(self) -> None:
        """Do the steps, those that nothing else proves first."""
        first, device = next(iter(self._batches)), self._device
        dims = {"N": SMALL_BATCH}
        self._do("", "device", lambda: gpu_steps.survey_device(device, find_graph(first), dims))
        self._do("", "dropout", lambda: gpu_numbers.try_seeded_dropout(device, self._folder))
        for name in self._batches:
            self._check_graph(name)
        self._do("", "weights", lambda: gpu_numbers.compare_weight_gradients(device, self._folder))

    def _check_graph(self, name: str) -> None:
        path, batch = find_graph(name), self._batches[name]
        costs, schedule = self._folder / f"{name}.costs.json", self._folder / f"{name}.json"
        on = ("--provider", self._device.provider)
        model = (str(path), "--dim", f"N={batch}")
        self._command(name, "profile", *model, *on, "--whole", "-o", str(costs))
        for budget in BUDGETS if costs.exists() else ():
            schedule.unlink(missing_ok=True)
            asked = ("--budget", budget, "--costs", str(costs), "--strategy", "greedy")
            self._command(name, "solve", *model, *asked, "-o", str(schedule))
            if schedule.exists():
                both = (str(path), str(schedule), "--costs", str(costs), "--run", *on)
                self._command(name, "check", *both)
        if not costs.exists():
            return
        bench = self._do_prepare(name, costs)
        if bench is not None:
            self._do(name, "kernels", lambda: gpu_steps.find_kernels(bench))
            self._do(name, "arenas", lambda: gpu_steps.try_arenas(bench))
            if name == next(iter(self._batches)):
                self._do(name, "fences", lambda: gpu_steps.try_fences(bench))

    def _do_prepare(self, name: str, costs: Path) -> gpu_steps.Bench | None:
        made: list[gpu_steps.Bench] = []

        def prepare() -> Figures:
            dims = {"N": self._batches[name]}
            made.append(
                gpu_steps.prepare(find_graph(name), dims, costs, self._device, self._folder)
            )
            return {"plan": made[0].plan.peak.nbytes, "budget": made[0].plan.budget_nbytes}

        self._do(name, "plan", prepare)
        return made[0] if made else None

    def _do(self, graph: str, step: str, work: Callable[[], Figures]) -> None:
        """Add the row of a step that is done here."""
        if self._is_late(graph, step):
            return
        start = time.monotonic()
        row: Figures = {"graph": graph, "step": step, "passed": True}
        try:
            row["figures"] = work()
        except Exception as error:  # one step's failure must not hide what the others find
            traceback.print_exc()
            row |= {"passed": False, "errors": [f"{type(error).__name__}: {error}"]}
        self._add(row, start)

    def _command(self, graph: str, *arguments: str) -> None:
        """Add the row of a step that is a command."""
        if self._is_late(graph, arguments[0]):
            return
        start = time.monotonic()
        command = [sys.executable, "-m", "checkmate", *arguments, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        row: Figures = {"graph": graph, "step": arguments[0], "passed": done.returncode == 0}
        row["exit_code"] = done.returncode
        row["errors"] = done.stderr.strip().splitlines()[-2:] if done.returncode else []
        row["figures"] = json.loads(done.stdout) if done.stdout else {}
        self._add(row, start)

    def _add(self, row: Figures, start: float) -> None:
        row["seconds"] = round(time.monotonic() - start, 1)
        self.rows.append(row)
        result = "passed" if row["passed"] else "FAILED"
        print(f"{row['graph']} {row['step']}: {result}, {row['seconds']} s", file=sys.stderr)

    def _is_late(self, graph: str, step: str) -> bool:
        is_late = time.monotonic() - self.start > LAST_START_S
        if is_late:
            self.rows.append({"graph": graph, "step": step, "passed": True, "skipped": "no time"})
        return is_late


def find_graph(name: str) -> Path:
    """Return the file of the tiny graph ``name``."""
    return GRAPHS / f"{name}-tiny-bN.onnx"


if __name__ == "__main__":
    main()
