"""Hold the plan against the run: bytes under two kinds of session options, and time.

    python bench/truth.py [--shares 80,70,60] [--rounds 9] [--sessions 5] [--time-limit 60]
        [MODEL:N ...]

What `solve` and `check --run` do by default, with costs measured on one thread; MODEL:N binds the
dimension N. One line a graph and budget. Bytes in MiB: the live peak of the plan, and the budget
that its arena needs; the most that three runs took as advised, the first run under onnxruntime's
defaults, three under its defaults without memory patterns; the largest of them over the plan.
``proof``: whether the rewritten graph completed three runs in an arena of the budget and the
original did not; ``judged``: how many properties fail. Then the time of the plan and of the
rewritten graph, and the overhead planned and measured, in percent: medians of runs of both graphs
in turn, in several sessions of each, on one thread. The last budget is the smallest that is found,
plus 5 %. Without models: the tiny graphs, at batches whose activations exceed 100 MB.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass
from pathlib import Path

from checkmate.arena import count_budget_nbytes
from checkmate.cli.fencing import foresee_fences, make_form, solve_fenced
from checkmate.cli.record import Held, make_record
from checkmate.cli.source import Asked, Source, read_planned
from checkmate.engine.min_budget import find_min_budget
from checkmate.engine.ordering import choose_order
from checkmate.engine.solve import run_baseline
from checkmate.engine.written import Search
from checkmate.errors import CheckmateError
from checkmate.formats.schedule_json import ScheduleRecord
from checkmate.liveness import insert_frees
from checkmate.onnxio.digest import digest_model
from checkmate.onnxio.model import Model
from checkmate.onnxio.storage import find_arena_rules
from checkmate.onnxio.windows import Fences
from checkmate.onnxio.write import place_file, place_planned, render_model
from checkmate.plan import Plan
from checkmate.problem import Problem
from checkmate.profiler.profile import ProfileOptions, profile_model
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.device import probe_device
from checkmate.runtime.execute import race_models
from checkmate.runtime.protocol import Settings
from checkmate.search.finding import Limits
from checkmate.trial.judgement import Terms, judge
from checkmate.trial.rewriting import Rewriting
from checkmate.trial.runs import N_RUNS, Trial, run_trial

GRAPHS = Path(__file__).parent.parent / "graphs"
BATCHES = {"vgg16": 1024, "mobilenetv1": 1024, "resnet50": 512, "unet": 512, "gpt2": 1024}
MARGIN = 1.05
HEADER = (
    f"{'graph':18} {'%':>5} {'live':>8} {'arena':>8} {'advised':>8} {'default':>8} {'no patt.':>8}"
    f" {'ratio':>6} {'outputs':9} {'proof':6} {'judged':6} {'plan/run ms':>18} {'ratio':>6}"
    f" {'over %':>7} {'run %':>7}"
)


@dataclass(frozen=True, slots=True)
class Given:
    """What the command line says."""

    shares: tuple[int, ...]
    n_rounds: int
    n_sessions: int
    time_s: float


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--shares", default="80,70,60")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--sessions", type=int, default=5)
    parser.add_argument("--time-limit", type=float, default=60)
    parser.add_argument("models", nargs="*")
    options = parser.parse_args()
    shares = tuple(map(int, options.shares.split(",")))
    given = Given(shares, options.rounds, options.sessions, options.time_limit)
    models = options.models or [f"{GRAPHS}/{k}-tiny-bN.onnx:{n}" for k, n in BATCHES.items()]
    print(HEADER)
    for text in models:
        path, _, batch = text.partition(":")
        bench = Bench(Path(path), {"N": int(batch)} if batch else {}, given)
        for share in (*given.shares, 0):
            print(bench.measure(share), flush=True)


class Bench:
    """One graph at one batch size, profiled once."""

    def __init__(self, path: Path, dims: dict[str, int], given: Given) -> None:
        self._given = given
        self._name = path.stem[:18]
        model, lineage = read_planned(path, Asked(dims, optimize=None))
        profile = profile_model(
            model, probe_device("cpu"), ProfileOptions(threads=1), lambda _: None
        )
        problem = Problem(model.graph, profile.costs, find_arena_rules(model, "cpu"))
        self._model: Model = model
        self._source = Source(problem, digest_model(model), model, dims, lineage)
        self._baseline = run_baseline(problem)

    def measure(self, share: int) -> str:
        """Return the line of one budget: a share of the peak in percent; 0: the smallest."""
        budget_nbytes = self._find_budget_nbytes(share)
        title = f"{self._name:18} {100 * budget_nbytes / self._baseline.peak.nbytes:5.1f}"
        in_order = choose_order(self._source.problem, "file")
        search = Search(budget_nbytes, "auto", Limits(time_s=self._given.time_s))
        try:
            plan, fences = solve_fenced(self._source, in_order, search, "auto")
        except CheckmateError as error:
            return f"{title} {error.message}"
        record = make_record(self._source, plan, self._baseline, Held(fences, "file"))
        trial = run_trial(Rewriting(self._model, plan.schedule, fences), record, "cpu")
        return f"{title} {self._describe(plan, record, trial, fences)} {self._race(plan, fences)}"

    def _find_budget_nbytes(self, share: int) -> int:
        problem = self._source.problem
        if not share:
            in_order = choose_order(problem, "file")
            form = make_form(self._source, in_order, foresee_fences(self._source, "auto"))
            reordered = form.reordering.reordered
            smallest = find_min_budget(reordered, Limits(time_s=20), form.count_nbytes)
            return int(smallest.nbytes * MARGIN)
        schedule = insert_frees(problem.graph, choose_order(problem, "file").order)
        return count_budget_nbytes(problem, schedule) * share // 100

    def _describe(self, plan: Plan, record: ScheduleRecord, trial: Trial, fences: Fences) -> str:
        runs = [pair.rewritten for pair in trial.pairs]
        held_nbytes = runs[0].inputs_nbytes + runs[0].initializers_nbytes
        counts = (N_RUNS, 1, N_RUNS)
        peaks = [held_nbytes + max(run.run_nbytes[:n]) for run, n in zip(runs, counts, strict=True)]
        arena_nbytes = plan.peak.nbytes + plan.fragmentation_nbytes
        mib = " ".join(f"{n / 2**20:8.2f}" for n in (plan.peak.nbytes, arena_nbytes, *peaks))
        outputs = "DIFFERENT" if trial.pairs[0].differences else "equal"
        judgement = judge(trial, Terms(record.budget_nbytes, 0, fences))
        proof = trial.proof
        is_proved = proof is not None and proof.refusal is None and proof.original_refusal
        ratio = max(peaks) / plan.peak.nbytes
        failed = len(judgement.failures)
        return f"{mib} {ratio:6.4f} {outputs:9} {'yes' if is_proved else 'NO':6} {failed:6}"

    def _race(self, plan: Plan, fences: Fences) -> str:
        def render(path: Path) -> bytes:
            return render_model(self._model, plan.schedule, path, fences)

        specs, settings = specify_inputs(self._model), Settings(threads=1)
        with place_planned(self._model) as planned, place_file(self._model, render) as rewritten:
            files, given = (planned, rewritten), self._given
            times_ns = race_models(files, specs, settings, given.n_rounds, given.n_sessions)
        before_ns, after_ns = map(statistics.median, times_ns)
        planned_over = 100 * (plan.time_ns / self._baseline.time_ns - 1)
        measured_over = 100 * (after_ns / before_ns - 1)
        return (
            f"{plan.time_ns / 1e6:8.1f}/{after_ns / 1e6:<9.1f} {plan.time_ns / after_ns:6.3f}"
            f" {planned_over:7.2f} {measured_over:7.2f}"
        )


if __name__ == "__main__":
    main()
