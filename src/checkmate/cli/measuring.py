"""Profiling with a progress bar on terminals."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBar

from checkmate.cli.report import echo_note
from checkmate.cli.terminal import escape
from checkmate.onnxio.model import Model
from checkmate.profiler.cache import find_cache_folder
from checkmate.profiler.kernels import Unplaced, find_unplaced
from checkmate.profiler.profile import Profile, ProfileOptions, Progress, profile_model
from checkmate.runtime.device import Device, probe_device

_N_NAMED = 3


def measure(model: Model, provider: Literal["auto", "cuda", "cpu"]) -> tuple[Profile, Device]:
    """Return the measured costs of ``model`` and the device; says what could not be measured."""
    device = probe_device(provider)
    if device.notice:
        echo_note(device.notice)
    if device.provider == "cuda":
        # Every op has a kernel on the CPU, or its failure to run is named as an estimate.
        for line in describe_unplaced(find_unplaced(model, device.provider)):
            echo_note(line)
    options = ProfileOptions(cache_folder=find_cache_folder())
    with _show_progress() as on_progress:
        profile = profile_model(model, device, options, on_progress)
    measured = profile.n_signatures - profile.n_remembered
    echo_note(
        f"costs of {len(model.graph.ops)} ops on {device.name}: {profile.n_signatures} kinds,"
        f" {measured} measured now, {profile.n_remembered} remembered"
    )
    if profile.alone:
        echo_note(f"times are those of ops alone, as the whole graph was not run: {profile.alone}")
    for estimated in profile.estimated[:_N_NAMED]:
        echo_note(f"estimated: {estimated.op}: {estimated.reason}")
    if len(profile.estimated) > _N_NAMED:
        echo_note(f"estimated: {len(profile.estimated) - _N_NAMED} more ops")
    return profile, device


def describe_unplaced(unplaced: Sequence[Unplaced]) -> Iterator[str]:
    """Yield a line about the ops that run on the CPU, and one for each kind that is refused."""
    fallen = [kind for kind in unplaced if kind.reason is None]
    if fallen:
        kinds = Counter({kind.op_type: 0 for kind in fallen})
        for kind in fallen:
            kinds[kind.op_type] += len(kind.ops)
        counts = ", ".join(f"{count} {op_type}" for op_type, count in kinds.items())
        yield (
            f"note: onnxruntime has no CUDA kernel for {kinds.total()} ops ({counts}; the first is"
            f" {fallen[0].ops[0]!r}): they run on the CPU, their tensors are copied there and back"
            " (Memcpy nodes), and may leave the order of the schedule"
        )
    for kind in unplaced:
        if kind.reason is not None:
            yield (
                f"note: onnxruntime refuses {len(kind.ops)} {kind.op_type} ops on CUDA, so the"
                f" graph will not run as it is; the first is {kind.ops[0]!r}: {kind.reason}"
            )


@contextmanager
def _show_progress() -> Iterator[Callable[[Progress], None]]:
    """Yield what takes progress; it is drawn only when standard error is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = (
        TextColumn("measuring"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("{task.fields[op]}", markup=False),
    )  # fmt: skip
    with ProgressBar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, op="")
        yield lambda p: bar.update(task, completed=p.n_done, total=p.n_all, op=escape(p.op))
