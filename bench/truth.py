"""Hold the plan against the run: bytes under two kinds of session options, and time.

    python bench/truth.py [--shares 80,70,60] [--rounds 9] [--no-arena] [MODEL:N ...]

One line a graph and budget. Bytes in MiB: the live peak of the plan and of the arena it needs; the
most that three runs took as advised, the first run under onnxruntime's defaults, three runs under
its defaults without memory patterns; the largest of them over the plan; whether the outputs equal
the original's bit for bit. Then the time of the plan over the measured time of the rewritten graph,
and the overhead planned and measured, in percent: medians of runs of both graphs in turn, on one
thread. The last budget is the smallest that the greedy search reaches, plus 5 %. Without models:
the tiny graphs, at batches whose activations exceed 100 MB.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

from checkmate.arena import count_budget_nbytes
from checkmate.engine.solve import run_baseline, solve
from checkmate.errors import CheckmateError
from checkmate.folding import fold_views
from checkmate.heuristics.greedy import find_smallest_budget
from checkmate.liveness import insert_frees
from checkmate.onnxio.read import read_model
from checkmate.onnxio.storage import find_arena_rules
from checkmate.onnxio.write import render_model
from checkmate.plan import Plan
from checkmate.problem import Problem
from checkmate.profiler.profile import ProfileOptions, profile_model
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.arrays import compare_outputs
from checkmate.runtime.device import probe_device
from checkmate.runtime.execute import RunOptions, RunResult, race_models, run_model
from checkmate.runtime.protocol import Manner, Settings
from checkmate.search.finding import Limits
from checkmate.search.strategies import GREEDY_EFFORT

GRAPHS = Path(__file__).parent.parent / "graphs"
BATCHES = {"vgg16": 1024, "mobilenetv1": 1024, "resnet50": 512, "unet": 512, "gpt2": 1024}
MARGIN = 1.05
MANNERS: tuple[tuple[Manner, int], ...] = (
    ("scheduled", 3),
    ("default", 1),
    ("default-no-pattern", 3),
)
HEADER = (
    f"{'graph':18} {'%':>5} {'live':>8} {'arena':>8} {'advised':>8} {'default':>8} {'no patt.':>8}"
    f" {'ratio':>6} {'outputs':9} {'plan/run ms':>18} {'ratio':>6} {'over %':>7} {'run %':>7}"
)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line says."""

    shares: tuple[int, ...]
    n_rounds: int
    has_arena: bool
    time_s: float


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shares", default="80,70,60")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--no-arena", action="store_true")
    parser.add_argument("--time-limit", type=float, default=60)
    parser.add_argument("models", nargs="*")
    given = parser.parse_args()
    shares = tuple(map(int, given.shares.split(",")))
    asked = Asked(shares, given.rounds, not given.no_arena, given.time_limit)
    models = given.models or [f"{GRAPHS}/{k}-tiny-bN.onnx:{n}" for k, n in BATCHES.items()]
    print(HEADER)
    for text in models:
        path, _, batch = text.partition(":")
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(Path(path), int(batch or 1), asked, Path(folder))
            for share in (*shares, 0):
                print(bench.measure(share), flush=True)


class Bench:
    """One graph at one batch size, profiled once."""

    def __init__(self, path: Path, batch: int, asked: Asked, folder: Path) -> None:
        self._asked, self._folder = asked, folder
        self._settings = Settings(threads=1)
        self._model = read_model(path, {"N": batch})
        profile = profile_model(
            self._model, probe_device("cpu"), ProfileOptions(threads=1), lambda _: None
        )
        rules = find_arena_rules(self._model, "cpu") if asked.has_arena else None
        self._problem = Problem(self._model.graph, profile.costs, rules)
        self._baseline = run_baseline(self._problem)
        self._original = self._run(path, "scheduled", 1, "original")

    def measure(self, share: int) -> str:
        """Return the line of one budget: a share of the peak in percent; 0: the smallest."""
        base_nbytes = self._baseline.peak.nbytes
        budget_nbytes = base_nbytes * share // 100 if share else self._find_smallest_nbytes()
        title = f"{self._model.path.stem[:18]:18} {100 * budget_nbytes / base_nbytes:5.1f}"
        try:
            limits = Limits(time_s=self._asked.time_s)
            plan = solve(self._problem, budget_nbytes, "auto", limits)
        except CheckmateError as error:
            return f"{title} {error.message}"
        return f"{title} {self._compare(plan)}"

    def _find_smallest_nbytes(self) -> int:
        folding = fold_views(self._problem)
        _, order = find_smallest_budget(folding.folded, GREEDY_EFFORT)
        schedule = insert_frees(self._model.graph, folding.unfold(order))
        return int(count_budget_nbytes(self._problem, schedule) * MARGIN)

    def _compare(self, plan: Plan) -> str:
        path = self._folder / "rewritten.onnx"
        path.write_bytes(render_model(self._model, plan.schedule, path, "all"))
        runs = [self._run(path, manner, n, manner) for manner, n in MANNERS]
        peaks = [run.peak_nbytes or 0 for run in runs]
        own, worst = runs[0], max(peaks)
        assert self._original.outputs is not None
        assert own.outputs is not None
        is_equal = not compare_outputs(self._original.outputs, own.outputs)
        live, arena = plan.peak.nbytes, plan.peak.nbytes + plan.fragmentation_nbytes
        mib = " ".join(f"{nbytes / 2**20:8.2f}" for nbytes in (live, arena, *peaks))
        outputs = "equal" if is_equal else "DIFFERENT"
        return f"{mib} {worst / live:6.4f} {outputs:9} {self._race(path, plan)}"

    def _race(self, path: Path, plan: Plan) -> str:
        files = (self._model.path, path)
        specs = specify_inputs(self._model)
        times_ns = race_models(files, specs, self._settings, self._asked.n_rounds)
        before_ns, after_ns = map(statistics.median, times_ns)
        planned = 100 * (plan.time_ns / self._baseline.time_ns - 1)
        measured = 100 * (after_ns / before_ns - 1)
        return (
            f"{plan.time_ns / 1e6:8.1f}/{after_ns / 1e6:<9.1f} {plan.time_ns / after_ns:6.3f}"
            f" {planned:7.2f} {measured:7.2f}"
        )

    def _run(self, path: Path, manner: Manner, n_runs: int, name: str) -> RunResult:
        settings = Settings(threads=1, manner=manner)
        outputs = self._folder / f"{name}.npz"
        options = RunOptions(settings, n_runs=n_runs, outputs=outputs)
        return run_model(path, specify_inputs(self._model), options)


if __name__ == "__main__":
    main()
