"""Compare the smallest arena limit that works with the predicted one.

    python bench/arena.py [--threads 1] [--shares 100,80,65] [--fences run] [NAME ...]

One line per tiny graph and budget, at a batch whose activations exceed 20 MB: peak of live bytes
planned, with fences, measured, and their ratio; the arena predicted, the smallest limit under
which a session completes three runs, and their ratio; what fragmentation adds to the live bytes;
the overhead of the schedule that fits in bytes alone, and of this one.
A share of 100 is the graph as it is; others are budgets in percent, solved by the greedy search.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from checkmate.arena import ArenaPeak, find_arena_peak
from checkmate.cli.fencing import adapt
from checkmate.engine.solve import run_baseline, solve
from checkmate.errors import CheckmateError, OutOfMemoryError
from checkmate.graph import OpId
from checkmate.liveness import insert_frees
from checkmate.onnxio.expand import expand
from checkmate.onnxio.model import Model
from checkmate.onnxio.read import read_model
from checkmate.onnxio.storage import find_arena_rules
from checkmate.onnxio.windows import Fences
from checkmate.onnxio.write import render_model
from checkmate.problem import Problem
from checkmate.profiler.profile import ProfileOptions, profile_model
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.arrays import save_arrays
from checkmate.runtime.device import probe_device
from checkmate.runtime.execute import RunOptions, run_model
from checkmate.runtime.inputs import make_inputs
from checkmate.runtime.protocol import Settings
from checkmate.schedule import Schedule
from checkmate.search.finding import Limits
from checkmate.simulate import simulate

GRAPHS = Path(__file__).parent.parent / "graphs"
BATCHES = {"vgg16": 256, "mobilenetv1": 256, "resnet50": 256, "unet": 128, "gpt2": 256}
HEADER = (
    f"{'graph':12} {'budget':>6} {'plan':>10} {'run':>10} {'ratio':>6}"
    f" {'predicted':>10} {'real':>10} {'ratio':>6} {'over live':>9} {'in bytes':>9} {'in arena':>9}"
)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--shares", default="100,80,65")
    parser.add_argument("--fences", choices=["none", "run", "all"], default="run")
    parser.add_argument("names", nargs="*", default=list(BATCHES))
    arguments = parser.parse_args()
    print(HEADER)
    for name in arguments.names:
        with tempfile.TemporaryDirectory() as folder:
            settings = Settings(threads=arguments.threads)
            trial = Trial(name, settings, arguments.fences, Path(folder))
            for share in map(int, arguments.shares.split(",")):
                for line in trial.measure(share):
                    print(f"{name:12} {share:>5}% {line}", flush=True)


class Trial:
    """One graph at one batch size, profiled once."""

    def __init__(self, name: str, settings: Settings, fences: Fences, folder: Path) -> None:
        self._settings, self._fences, self._folder = settings, fences, folder
        self._model: Model = read_model(GRAPHS / f"{name}-tiny-bN.onnx", {"N": BATCHES[name]})
        options = ProfileOptions(threads=settings.threads, max_runs=1)
        profile = profile_model(self._model, probe_device("cpu"), options, lambda _: None)
        self._problem = Problem(
            self._model.graph, profile.costs, find_arena_rules(self._model, "cpu")
        )
        self._inputs = folder / "inputs.npz"
        save_arrays(self._inputs, make_inputs(specify_inputs(self._model), 0))

    def measure(self, share: int) -> Iterator[str]:
        """Yield one line: predictions, then runs."""
        try:
            schedule = self._plan(share)
        except CheckmateError as error:
            yield error.message
            return
        written, run = expand(
            adapt(self._problem, self._fences), self._model, schedule, self._fences
        )
        planned = simulate(written, run).peak
        planned_nbytes = planned.live_nbytes + planned.workspace_nbytes
        assert written.arena is not None
        arena = find_arena_peak(written, run, written.arena)
        path = self._folder / "model.onnx"
        path.write_bytes(render_model(self._model, schedule, path, self._fences))
        ran = max(run_model(path, self._inputs, RunOptions(self._settings)).run_nbytes)
        real = self._find_smallest_limit(path, arena)
        yield (
            f"{planned_nbytes:>10} {ran:>10} {planned_nbytes / ran:6.4f}"
            f" {arena.reserved_nbytes:>10} {real:>10} {arena.reserved_nbytes / real:6.4f}"
            f" {100 * (real / ran - 1):>8.1f}% {self._find_overheads(share, schedule)}"
        )

    def _plan(self, share: int) -> Schedule:
        graph = self._problem.graph
        if share == 100:
            return insert_frees(graph, [OpId(i) for i in range(len(graph.ops))])
        budget_nbytes = run_baseline(self._problem).peak.nbytes * share // 100
        return solve(self._problem, budget_nbytes, "greedy", Limits()).schedule

    def _find_overheads(self, share: int, schedule: Schedule) -> str:
        """Return by how much bytes alone, and the arena too, make a run slower."""
        baseline = run_baseline(self._problem)
        budget_nbytes = baseline.peak.nbytes * share // 100
        in_bytes = replace(self._problem, arena=None)
        times = (
            solve(in_bytes, budget_nbytes, "greedy", Limits()).time_ns,
            simulate(self._problem, schedule).time_ns,
        )
        return " ".join(f"{100 * (time / baseline.time_ns - 1):>8.2f}%" for time in times)

    def _find_smallest_limit(self, path: Path, predicted: ArenaPeak) -> int:
        """Return the smallest limit that works, to within a thousandth."""
        low, high = predicted.live_nbytes * 9 // 10, predicted.reserved_nbytes
        while not self._works(path, high):
            low, high = high, high + high // 8
        while high - low > high // 1000:
            middle = (low + high) // 2
            if self._works(path, middle):
                high = middle
            else:
                low = middle
        return high

    def _works(self, path: Path, limit_nbytes: int) -> bool:
        """Return whether a session completes three runs: one to warm up and two timed."""
        settings = Settings(threads=self._settings.threads, arena_limit_nbytes=limit_nbytes)
        options = RunOptions(settings, n_runs=0, n_timed_runs=2)
        try:
            run_model(path, self._inputs, options)
        except OutOfMemoryError:
            return False
        return True


if __name__ == "__main__":
    main()
