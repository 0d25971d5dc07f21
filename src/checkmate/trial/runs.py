"""Both graphs run under each set of session options, and what they did."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from checkmate.formats.schedule_json import ScheduleRecord
from checkmate.onnxio.model import Model
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.arrays import Difference, compare_outputs
from checkmate.runtime.device import probe_device
from checkmate.runtime.execute import RunOptions, RunResult, run_model
from checkmate.runtime.protocol import Manner, Provider, Settings, TensorSpec
from checkmate.trial.order import Order, compare_computes, compare_exactly, compare_windows
from checkmate.trial.proof import Held, Proof, prove
from checkmate.trial.rewriting import Files, Rewriting, write_pair

N_RUNS = 3
_N_TIMED_RUNS = 5

_REFERENCES: Mapping[Manner, Manner] = {
    "scheduled": "scheduled",
    "default": "default",
    # Memory patterns move tensors, not numbers.
    "default-no-pattern": "default",
}
"""Per set of options: the one under which the original is run to compare with."""

MANNERS: tuple[Manner, ...] = tuple(_REFERENCES)


@dataclass(frozen=True, slots=True)
class Pair:
    """What both graphs did on equal inputs under one set of options."""

    manner: Manner
    original: RunResult
    rewritten: RunResult
    differences: tuple[Difference, ...]
    """Outputs that are not equal, bit for bit."""
    varying: tuple[str, ...]
    """Outputs that the original does not repeat, bit for bit, from run to run."""
    is_repeatable: bool
    """The rewritten graph repeats its outputs in later runs, or the original does not either."""
    is_single_threaded: bool
    """The outputs were compared in runs with one thread, because they differed with several."""
    order: Order


@dataclass(frozen=True, slots=True)
class Trial:
    """All that was run."""

    pairs: tuple[Pair, ...]
    """One for each set of options, those that we recommend first."""
    proof: Proof | None
    """None: the budget leaves nothing that an arena could be limited to."""


def run_trial(
    rewriting: Rewriting,
    record: ScheduleRecord,
    provider: Literal["auto", "cuda", "cpu"],
    manners: Sequence[Manner] = MANNERS,
) -> Trial:
    """Run a model and its rewriting in child processes and return what they did."""
    found = probe_device(provider).provider
    with (
        tempfile.TemporaryDirectory(prefix="checkmate-") as name,
        write_pair(rewriting, Path(name)) as files,
    ):
        runner = _Runner(rewriting.model, files, Path(name), found)
        pairs = tuple(_run_pair(rewriting, runner, manner) for manner in manners)
        first = pairs[0]
        held = Held(_find_live(first.original), _find_live(first.rewritten))
        proof = prove(rewriting.model, files, record, Settings(found), held)
    return Trial(pairs, proof)


def _find_live(result: RunResult) -> int | None:
    """Return the most that a run asked for, where that was counted to the byte."""
    return max(result.run_nbytes) if result.meter == "allocator" else None


class _Runner:
    """Runs the original and the rewritten file on equal inputs, each once per setting."""

    def __init__(
        self, model: Model, files: Files, folder: Path, provider: Literal["cuda", "cpu"]
    ) -> None:
        self._specs = specify_inputs(model)
        self._initializers_nbytes = _count_initializers_nbytes(model, self._specs)
        self._files, self._folder = files, folder
        self._done: dict[tuple[Path, Settings], RunResult] = {}
        self.provider = provider

    def run(self, manner: Manner, *, threads: int) -> tuple[RunResult, RunResult]:
        """Return what the original and the rewritten graph do."""
        original = Settings(self.provider, threads, manner=_REFERENCES[manner])
        rewritten = Settings(self.provider, threads, manner=manner)
        return self._run(self._files.original, original), self._run(
            self._files.rewritten, rewritten
        )

    def _run(self, path: Path, settings: Settings) -> RunResult:
        key = (path, settings)
        if key not in self._done:
            is_timed = settings.manner == "scheduled" and settings.threads == 0
            options = RunOptions(
                settings,
                n_runs=N_RUNS,
                n_timed_runs=_N_TIMED_RUNS if is_timed else 0,
                outputs=self._folder / f"outputs-{len(self._done)}.npz",
                initializers_nbytes=self._initializers_nbytes,
            )
            self._done[key] = run_model(path, self._specs, options)
        return self._done[key]


def _count_initializers_nbytes(model: Model, inputs: Sequence[TensorSpec]) -> int:
    """Return the bytes of what is resident in the file; what a run copies of it is the run's."""
    fed = {spec.name for spec in inputs}
    resident = [tensor for tensor in model.graph.tensors if tensor.producer is None]
    own = (tensor for tensor in resident if tensor.name in model.types)
    return sum(tensor.nbytes for tensor in own if tensor.name not in fed)


def _run_pair(rewriting: Rewriting, runner: _Runner, manner: Manner) -> Pair:
    original, rewritten = runner.run(manner, threads=0)
    compared = [_compare(original, rewritten)]
    is_same = not compared[0].differences and compared[0].is_repeatable
    if not is_same and runner.provider == "cpu":
        # Some kernels race: with several threads, not even one graph repeats its numbers.
        compared.append(_compare(*runner.run(manner, threads=1)))
    return Pair(
        manner,
        original,
        rewritten,
        compared[-1].differences,
        compared[-1].varying,
        compared[-1].is_repeatable,
        is_single_threaded=len(compared) > 1,
        order=compare_order(rewriting, manner, runner.provider, rewritten),
    )


@dataclass(frozen=True, slots=True)
class _Comparison:
    """As in a `Pair`."""

    differences: tuple[Difference, ...]
    varying: tuple[str, ...]
    is_repeatable: bool


def _compare(first: RunResult, second: RunResult) -> _Comparison:
    assert first.outputs is not None
    assert second.outputs is not None
    differences = compare_outputs(first.outputs, second.outputs)
    return _Comparison(differences, first.varying, second.is_repeatable or not first.is_repeatable)


def compare_order(
    rewriting: Rewriting, manner: Manner, provider: Provider, result: RunResult
) -> Order:
    """Return where ``result`` left the order that the rewritten graph promises for ``manner``."""
    elsewhere = frozenset(result.fallback if provider == "cuda" else ())
    if manner == "scheduled":
        return compare_exactly(rewriting, result.executed, elsewhere)
    compare = compare_windows if rewriting.fences == "run" else compare_computes
    return compare(rewriting, result.executed, elsewhere)
