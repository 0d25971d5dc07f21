"""Both graphs run, and what they did."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from checkmate.errors import MismatchError
from checkmate.formats.schedule_json import ScheduleRecord
from checkmate.onnxio.model import Model
from checkmate.onnxio.order import HOISTED_OPS
from checkmate.onnxio.rewrite import rewrite_model
from checkmate.onnxio.windows import Fences
from checkmate.onnxio.write import place_file, place_planned, render_model
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.arrays import Difference, compare_outputs
from checkmate.runtime.device import probe_device
from checkmate.runtime.execute import RunOptions, RunResult, run_model
from checkmate.runtime.protocol import Settings
from checkmate.schedule import Schedule
from checkmate.units import format_nbytes_exactly

_N_TIMED_RUNS = 5


@dataclass(frozen=True, slots=True)
class Trial:
    """What the original and the rewritten graph did, on equal inputs."""

    original: RunResult
    rewritten: RunResult
    differences: tuple[Difference, ...]
    """Outputs that are not equal, bit for bit."""
    misplaced: tuple[tuple[str, str], ...]
    """Where the executed order left the schedule: (scheduled op, executed op), the first few."""
    is_single_threaded: bool
    """The outputs were compared in runs with one thread, because they differed with several."""

    def as_document(self) -> dict[str, object]:
        """Return the figures for ``--json``."""
        return {
            "measured_peak_nbytes": self.rewritten.peak_nbytes,
            "measured_baseline_peak_nbytes": self.original.peak_nbytes,
            "measured_time_ns": self.rewritten.time_ns,
            "measured_baseline_time_ns": self.original.time_ns,
            "outputs_equal": not self.differences,
            "outputs_compared_with_one_thread": self.is_single_threaded,
            "order_equal": not self.misplaced,
        }

    def judge(self, record: ScheduleRecord, tolerance: float) -> None:
        """Raise `MismatchError` when numbers, order or peak are not what the plan says."""
        if self.differences:
            first = self.differences[0]
            raise MismatchError(
                f"{len(self.differences)} outputs differ; the first is {first.name!r},"
                f" {first.n_elements} elements by up to {first.max_error:g}"
            )
        if self.misplaced:
            scheduled, executed = self.misplaced[0]
            raise MismatchError(f"onnxruntime ran {executed!r} where {scheduled!r} is scheduled")
        peak_nbytes = self.rewritten.peak_nbytes
        if peak_nbytes is not None and peak_nbytes > record.peak_nbytes * (1 + tolerance):
            raise MismatchError(
                f"the run took {format_nbytes_exactly(peak_nbytes)}, but the plan says"
                f" {format_nbytes_exactly(record.peak_nbytes)}",
                hint="ops may need workspace that the costs do not count",
            )


@dataclass(frozen=True, slots=True)
class Rewriting:
    """A model as it is rewritten."""

    model: Model
    schedule: Schedule
    fences: Fences

    def render(self, path: Path) -> bytes:
        """Return the content of the file ``path``."""
        return render_model(self.model, self.schedule, path, self.fences)


def run_both(rewriting: Rewriting, provider: Literal["auto", "cuda", "cpu"]) -> Trial:
    """Run a model and its rewriting in child processes and return what they did."""
    model = rewriting.model
    device = probe_device(provider)
    with (
        tempfile.TemporaryDirectory(prefix="checkmate-") as folder,
        place_planned(model) as planned,
        place_file(model, rewriting.render) as rewritten,
    ):
        runner = _Runner(model, planned, rewritten, Path(folder), device.provider)
        original, after = runner.run(threads=0, n_timed_runs=_N_TIMED_RUNS)
        differences, is_single = _compare(original, after), False
        if differences and device.provider == "cpu":
            # Some kernels race: with several threads, not even one graph repeats its numbers.
            differences, is_single = _compare(*runner.run(threads=1, n_timed_runs=0)), True
    misplaced = _compare_order(rewriting, after.executed)
    return Trial(original, after, differences, misplaced, is_single_threaded=is_single)


@dataclass(frozen=True, slots=True)
class _Runner:
    """Runs the original and the rewritten file on equal inputs."""

    model: Model
    planned: Path
    rewritten: Path
    folder: Path
    provider: Literal["cuda", "cpu"]

    def run(self, *, threads: int, n_timed_runs: int) -> tuple[RunResult, RunResult]:
        original = self._run_one(self.planned, "original", threads, n_timed_runs)
        return original, self._run_one(self.rewritten, "rewritten", threads, n_timed_runs)

    def _run_one(self, path: Path, name: str, threads: int, n_timed_runs: int) -> RunResult:
        graph, specs = self.model.graph, specify_inputs(self.model)
        fed = {spec.name for spec in specs}
        weights = [t.nbytes for t in graph.tensors if t.producer is None and t.name not in fed]
        options = RunOptions(
            Settings(self.provider, threads),
            n_timed_runs=n_timed_runs,
            outputs=self.folder / f"{name}-{threads}.npz",
            initializers_nbytes=sum(weights),
        )
        return run_model(path, specs, options)


def _compare(first: RunResult, second: RunResult) -> tuple[Difference, ...]:
    assert first.outputs is not None
    assert second.outputs is not None
    return compare_outputs(first.outputs, second.outputs)


def _compare_order(rewriting: Rewriting, executed: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return where ``executed`` leaves the schedule; Shape and Size run where they like."""
    nodes = rewrite_model(rewriting.model, rewriting.schedule, rewriting.fences).graph.node
    hoisted = {node.name for node in nodes if node.op_type in HOISTED_OPS}
    planned = [n.name for n in nodes if n.name not in hoisted and n.op_type != "Constant"]
    # Nodes within the bodies of control flow are executed too.
    known = frozenset(planned)
    ran = [name for name in executed if name in known]
    length = max(len(planned), len(ran))
    padded = zip(
        planned + ["nothing"] * (length - len(planned)),
        ran + ["nothing"] * (length - len(ran)),
        strict=True,
    )
    return tuple(pair for pair in padded if pair[0] != pair[1])[:10]
