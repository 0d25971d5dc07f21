"""Run a model file in a child process and learn its order, its peak and its time."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from checkmate.errors import OutOfMemoryError, RunError
from checkmate.runtime.arrays import SavedArrays
from checkmate.runtime.protocol import (
    Meter,
    RaceTask,
    Reply,
    RunTask,
    Settings,
    TensorSpec,
    WatchTask,
    read_ints,
    read_texts,
)
from checkmate.runtime.resident import MALLOC_ENVIRONMENT
from checkmate.runtime.worker import CrashError, Limits, MeterError, Worker

Inputs = Path | Sequence[TensorSpec]
"""Arrays in a file that `save_arrays` wrote, or what to draw."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How to run a model, and how often."""

    settings: Settings = field(default_factory=Settings)
    limits: Limits = field(default_factory=Limits)
    seed: int = 0
    """Of inputs that are drawn."""
    n_runs: int = 1
    """Measured runs: memory in each, the order in the first; 0: neither is asked for."""
    n_timed_runs: int = 0
    """Further runs, in a session that measures nothing but time."""
    max_timed_ns: int = 60_000_000_000
    """No further timed run starts after this long; one always does."""
    outputs: Path | None = None
    """Where the outputs of the first run go, an .npz file; None: they are dropped."""
    initializers_nbytes: int = 0
    """Bytes of the model's initializers, which sessions may read where the file has them."""
    meter: Meter | None = None
    """None: the best that works here."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """What one model did."""

    executed: tuple[str, ...]
    """Names of its ops, in the order in which the first run executed them."""
    fallback: tuple[str, ...]
    """Ops that ran on another provider than the one asked for."""
    inputs_nbytes: int
    """What the caller holds: graph inputs, parameters included."""
    initializers_nbytes: int
    run_nbytes: tuple[int, ...]
    """Per measured run: the most that it took beside both; empty when nothing measures it."""
    meter: Meter
    varying: tuple[str, ...]
    """Outputs that were not the same, bit for bit, in all measured runs."""
    times_ns: tuple[int, ...]
    """Per timed run."""
    outputs: SavedArrays | None

    @property
    def is_repeatable(self) -> bool:
        """Return whether all measured runs gave the same outputs, bit for bit."""
        return not self.varying

    @property
    def peak_nbytes(self) -> int | None:
        """The most in memory during any measured run: inputs, initializers, all that is made.

        None when nothing measures it here.
        """
        if not self.run_nbytes:
            return None
        return self.inputs_nbytes + self.initializers_nbytes + max(self.run_nbytes)

    @property
    def time_ns(self) -> int | None:
        """The median of the timed runs; None when none was timed."""
        return statistics.median_low(self.times_ns) if self.times_ns else None


def run_model(model: Path, inputs: Inputs, options: RunOptions) -> RunResult:
    """Run ``model`` and return what it did.

    Raises `OutOfMemoryError` when the model does not fit in the limits or the machine, and
    `RunError` when onnxruntime refuses it, takes too long or crashes.
    """
    if options.meter is not None:
        return _run(model, inputs, options, options.meter)
    try:
        return _run(model, inputs, options, "allocator")
    except (MeterError, CrashError):
        # A crash may be the meter's: what it relies on is no part of onnxruntime's Python API.
        has_pages = options.settings.provider == "cpu"
        return _run(model, inputs, options, "resident" if has_pages else "none")


def race_models(
    models: Sequence[Path],
    specs: Sequence[TensorSpec],
    settings: Settings,
    n_rounds: int,
    n_sessions: int = 1,
) -> tuple[tuple[int, ...], ...]:
    """Return the times of runs of each model, in ns, taken in turn in one process.

    ``n_rounds`` runs of each of ``n_sessions``, so that neither what else the machine does then nor
    where a session lies in the memory makes the difference. All sessions stay loaded together.
    """
    paths = tuple(str(model.resolve()) for model in models)
    with Worker() as worker:
        reply = worker.ask(RaceTask(paths, settings, tuple(specs), 0, n_rounds, n_sessions))
    times_ns = reply["times_ns"]
    assert isinstance(times_ns, list)
    return tuple(tuple(map(int, own_ns)) for own_ns in times_ns)


@dataclass(frozen=True, slots=True)
class Watched:
    """What runs of a whole model took."""

    times_ns: tuple[int, ...]
    ops_ns: Mapping[str, int]
    """The least that an op took in any run, as onnxruntime's profile says it, by its name; on
    average over sessions."""


def watch_model(model: Path, task: WatchTask, worker: Worker) -> Watched:
    """Return what each op of ``model`` takes among the others; all errors are those of runs."""
    reply = worker.ask(replace(task, model=str(model.resolve())))
    ops_ns = reply["ops_ns"]
    assert isinstance(ops_ns, dict)
    return Watched(read_ints(reply, "times_ns"), {str(k): int(v) for k, v in ops_ns.items()})


def _run(model: Path, inputs: Inputs, options: RunOptions, meter: Meter) -> RunResult:
    if not model.is_file():
        raise RunError(f"model {model} is not there")
    task = RunTask(
        # Behind a link, onnxruntime would look for weights beside the link, and refuse them.
        str(model.resolve()),
        options.settings,
        str(inputs.absolute()) if isinstance(inputs, Path) else "",
        () if isinstance(inputs, Path) else tuple(inputs),
        options.seed,
        "" if options.outputs is None else str(options.outputs.absolute()),
        options.n_runs,
        options.n_timed_runs,
        options.max_timed_ns,
        meter,
    )
    environment = MALLOC_ENVIRONMENT if meter == "resident" else {}
    with Worker(options.limits, environment) as worker:
        try:
            reply = worker.ask(task)
        except OutOfMemoryError as error:
            raise OutOfMemoryError(
                f"run of {model.name}: {error.message}", hint=error.hint
            ) from None
    return _read(reply, options)


def _read(reply: Reply, options: RunOptions) -> RunResult:
    session_nbytes, inputs_nbytes = reply["session_nbytes"], reply["inputs_nbytes"]
    assert isinstance(session_nbytes, int)
    assert isinstance(inputs_nbytes, int)
    meter = reply["meter"]
    assert meter in ("allocator", "resident", "none")
    return RunResult(
        executed=read_texts(reply, "executed"),
        fallback=read_texts(reply, "fallback"),
        inputs_nbytes=inputs_nbytes,
        # A session that copies its weights to the device says how much that took.
        initializers_nbytes=max(session_nbytes, options.initializers_nbytes),
        run_nbytes=read_ints(reply, "run_nbytes"),
        meter=meter,
        varying=read_texts(reply, "varying"),
        times_ns=read_ints(reply, "times_ns"),
        outputs=None if options.outputs is None else SavedArrays(options.outputs),
    )
