"""Prove the CUDA paths on a machine that has a GPU, in eight minutes; one JSON report on stdout.

    python bench/gpu_check.py [--provider cuda|cpu] [--small]

What nothing else proves comes first: what a process takes of the device beside its arena, sessions
that may not fall back to the CPU, dropout with a seed, both forms of a convolution's weight
gradient. Then three graphs: profile, solve, run the original and the rewritten graph with and
without a memory limit; ops without a kernel; arenas of the predicted size; fences against the order
by priority; a second budget; the smallest arenas that work. Every step says what was measured,
what is allowed, and whether that holds (docs/cuda.md lists all fields and thresholds).

`--provider cpu` goes through the same steps without a GPU, `--small` with small batches. Steps that
the time leaves out are listed as skipped. Exit codes: 0 all holds, or there is no GPU; 1 something
does not hold, or there is a GPU and CUDA is not usable; 3 nothing failed, and steps were skipped.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from checkmate.errors import CheckmateError, DeviceError
from checkmate.onnxio.dims import find_dims
from checkmate.onnxio.load import load_proto
from checkmate.runtime.device import Device, probe_device
from checkmate.runtime.protocol import Layout
from gpu_arenas import OWN_LAYOUT, ArenaBench, find_smallest_arenas, prepare_arena, try_arenas
from gpu_commands import (
    judge_check,
    judge_device_budget,
    judge_profile,
    judge_solve,
    name_model,
    run_command,
)
from gpu_fences import try_fences
from gpu_numbers import (
    LAYERS,
    SMALL_LAYERS,
    Layer,
    compare_weight_gradients,
    try_placing,
    try_seeded_dropout,
)
from gpu_report import Figures, Findings, Report
from gpu_steps import Bench, describe_plan, find_kernels, prepare, survey_device
from gpu_watch import find_gpu

GRAPHS = Path(__file__).parent.parent / "graphs"
BATCHES = {"gpt2": 512, "resnet50": 256, "unet": 256}
SMALL_BATCH = 16
BUDGET = "80%"
SECOND_BUDGET, SECOND_GRAPHS = "60%", ("gpt2", "unet")
TOTAL_S, STEP_S = 450, 150
_WANTING = "a step before it did not get so far"


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--provider", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()
    report = Report(TOTAL_S, STEP_S)
    try:
        device = probe_device(arguments.provider)
    except CheckmateError as error:
        sys.exit(explain(report, error))
    folder = Path(tempfile.mkdtemp(prefix="checkmate-gpu-"))
    trials = make_trials(folder, is_small=arguments.small)
    layers = SMALL_LAYERS if arguments.small else LAYERS
    Steps(device, report, trials, layers).run()
    if report.passed is not False:
        shutil.rmtree(folder)
    print_report(report, device, folder if folder.exists() else None)
    sys.exit(report.exit_code)


def explain(report: Report, error: CheckmateError) -> int:
    """Say why nothing can be checked, and return the exit code: that is a failure with a GPU."""
    found = find_gpu()
    why = f"{error.message}; {error.hint}" if error.hint else error.message
    if found is None and isinstance(error, DeviceError):
        print(f"no GPU check here: {why}", file=sys.stderr)
        return 0
    why = f"{f'there is a GPU ({found}), but ' if found else ''}{why}"
    report.do("", "probe", lambda: Findings({}, errors=(why,)))
    print(why, file=sys.stderr)
    print_report(report, None)
    return report.exit_code


def print_report(report: Report, device: Device | None, folder: Path | None = None) -> None:
    """Print all that was found as one JSON document; ``folder`` has the files of a failure."""
    known: Figures = {"provider": None} if device is None else {
        "provider": device.provider,
        "device": device.name,
        "memory_nbytes": device.nbytes,
        "onnxruntime": device.onnxruntime,
    }  # fmt: skip
    document = known | {
        "seconds": round(time.monotonic() - report.start_s, 1),
        "passed": report.passed,
        "folder": None if folder is None else str(folder),
        "skipped": report.skipped,
        "rows": report.rows,
    }
    print(json.dumps(document, indent=1))


@dataclass(slots=True)
class Trial:
    """A graph, and what the steps before made of it."""

    name: str
    path: Path
    dims: dict[str, int]
    costs: Path
    optimized: Path
    """The graph that the costs are of, its batch bound."""
    bench: Bench | None = None
    """None: not there yet."""
    arena: ArenaBench | None = None
    """None: not there yet."""

    def find_planned(self) -> tuple[Path, dict[str, int]]:
        """Return the graph that the costs are of, once it is there, and its dimensions.

        Reading it takes no session; the optimizer keeps a graph that it would not change.
        """
        if not self.optimized.exists():
            return self.path, self.dims
        known = find_dims(load_proto(self.optimized).graph)
        return self.optimized, {name: self.dims[name] for name in self.dims if name in known}


def make_trials(folder: Path, *, is_small: bool) -> tuple[Trial, ...]:
    """Return the graphs; what is made of them goes to ``folder``."""
    return tuple(
        Trial(
            name,
            find_graph(name),
            {"N": SMALL_BATCH if is_small else batch},
            folder / f"{name}.costs.json",
            folder / f"{name}.optimized.onnx",
        )
        for name, batch in BATCHES.items()
    )


class Steps:
    """All steps, in an order that leaves the dearest to the end."""

    def __init__(
        self, device: Device, report: Report, trials: Sequence[Trial], layers: tuple[Layer, ...]
    ) -> None:
        self._device, self._report = device, report
        self._trials, self._layers = trials, layers
        self._folder = trials[0].costs.parent

    def run(self) -> None:
        """Do them."""
        self._do_once()
        for trial in self._trials:
            self._profile(trial)
            self._solve(trial, BUDGET)
        for trial in self._trials:
            self._prepare(trial)
            self._try_bench(trial, "kernels", find_kernels)
            if trial is self._trials[0]:
                self._try_bench(trial, "fences", try_fences)
            self._try_arena(trial, "arenas", try_arenas)
        self._solve_device(self._trials[0])
        for trial in self._trials:
            if trial.name in SECOND_GRAPHS:
                self._solve(trial, SECOND_BUDGET)
        for trial in self._trials:
            find = partial(find_smallest_arenas, layouts=self._choose_layouts(trial))
            self._try_arena(trial, "smallest", find)

    def _do_once(self) -> None:
        device, folder, do = self._device, self._folder, self._report.do
        paths, dims = [trial.path for trial in self._trials], {"N": SMALL_BATCH}
        do("", "device", lambda: survey_device(device, paths, dims))
        do("", "placing", lambda: try_placing(device, folder))
        do("", "dropout", lambda: try_seeded_dropout(device, folder))
        do("", "weights", lambda: compare_weight_gradients(device, folder, self._layers))

    def _profile(self, trial: Trial) -> None:
        provider = self._device.provider
        model = name_model(str(trial.path), trial.dims)
        asked = ("profile", *model, "--provider", provider, "--whole", "-o", str(trial.costs))

        def work() -> Findings:
            done = run_command(asked, self._folder)
            return done.conclude(judge_profile(done.document, provider))

        self._report.do(trial.name, "profile", work)

    def _solve(self, trial: Trial, budget: str) -> None:
        """Solve and check; from the second time on the optimized graph, which is there then."""
        if self._lacks(trial, f"solve {budget}", trial.costs.exists()):
            self._report.skip(trial.name, f"check {budget}", _WANTING)
            return
        provider, schedule = self._device.provider, self._folder / f"{trial.name}-{budget}.json"
        is_first = not trial.optimized.exists()
        path, dims = trial.find_planned()
        command = ("solve", *name_model(str(path), dims))
        options = ("--costs", str(trial.costs), "--provider", provider)
        wanted = ("--strategy", "greedy", "--budget", budget, "-o", str(schedule))
        also = ("--optimized-model", str(trial.optimized)) if is_first else ()
        solved: Figures = {}

        def solve() -> Findings:
            done = run_command((*command, *options, *wanted, *also), self._folder)
            solved.update(done.document)
            return done.conclude(judge_solve(solved))

        def check() -> Findings:
            asked = ("check", str(path), str(schedule), "--run", *options)
            done = run_command(asked, self._folder)
            return done.conclude(judge_check(done.document, solved, provider))

        self._report.do(trial.name, f"solve {budget}", solve)
        if not self._lacks(trial, f"check {budget}", bool(solved)):
            self._report.do(trial.name, f"check {budget}", check)

    def _solve_device(self, trial: Trial) -> None:
        """Solve within all of the device."""
        if self._lacks(trial, "solve device", trial.costs.exists()):
            return
        device, (path, dims) = self._device, trial.find_planned()
        command = ("solve", *name_model(str(path), dims), "--provider", device.provider)
        wanted = ("--costs", str(trial.costs), "--budget", "device", "--strategy", "greedy")
        output = ("-o", str(self._folder / f"{trial.name}-device.json"))

        def solve() -> Findings:
            done = run_command((*command, *wanted, *output), self._folder)
            return done.conclude(judge_device_budget(done.document, device))

        self._report.do(trial.name, "solve device", solve)

    def _prepare(self, trial: Trial) -> None:
        if self._lacks(trial, "plan", trial.costs.exists()):
            return
        device, (path, dims) = self._device, trial.find_planned()

        def work() -> Findings:
            trial.bench = prepare(path, dims, trial.costs, device, self._folder)
            return describe_plan(trial.bench)

        self._report.do(trial.name, "plan", work)

    def _try_bench(self, trial: Trial, step: str, work: Callable[[Bench], Findings]) -> None:
        bench = trial.bench
        if bench is None:
            self._report.skip(trial.name, step, _WANTING)
        else:
            self._report.do(trial.name, step, lambda: work(bench))

    def _try_arena(self, trial: Trial, step: str, work: Callable[[ArenaBench], Findings]) -> None:
        """Do a step that needs a plan for the arena, which the first of them makes."""

        def prepared(bench: Bench) -> Findings:
            trial.arena = trial.arena or prepare_arena(bench)
            return work(trial.arena)

        self._try_bench(trial, step, prepared)

    def _choose_layouts(self, trial: Trial) -> tuple[Layout, ...]:
        """Return the layouts to try: the other one once, as it tells the same of all graphs."""
        own = OWN_LAYOUT[self._device.provider]
        other: Layout = "requests" if own == "region" else "region"
        return (own, other) if trial is self._trials[0] else (own,)

    def _lacks(self, trial: Trial, step: str, has_it: bool) -> bool:
        """Skip a step for which a step before has not made what it needs."""
        if not has_it:
            self._report.skip(trial.name, step, _WANTING)
        return not has_it


def find_graph(name: str) -> Path:
    """Return the file of the tiny graph ``name``."""
    return GRAPHS / f"{name}-tiny-bN.onnx"


if __name__ == "__main__":
    main()
