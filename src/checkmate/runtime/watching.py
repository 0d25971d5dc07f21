"""Child side of a watch: how long each op takes among the others."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnxruntime

from checkmate.runtime.inputs import make_inputs
from checkmate.runtime.protocol import Reply, WatchTask
from checkmate.runtime.running import SUFFIX, Binding
from checkmate.runtime.session import Instruments, choose_clock, make_session

_UNIT_NS = 1000
"""Of the durations that onnxruntime's profile holds, whole numbers rounded down."""


def watch(task: WatchTask, folder: Path) -> Reply:
    """Return the time of each run, and of each op, by its name.

    That of an op is the least in any run of a session, on average over sessions: as long as one
    lives, its pages may push each other out of a cache where those of another do not. To record
    what ops take slows a run of small ones, so the runs of which the time is told are others. An op
    whose name another op within a body has too is left out, as is one that is not run.
    """
    feeds = make_inputs(task.specs, task.seed)
    times_ns = _run(task, feeds, [Instruments()] * task.n_sessions)[1]
    profiles = [Instruments(folder / f"watch{n}") for n in range(task.n_sessions)]
    profiled, profiled_ns = _run(task, feeds, profiles)
    # The first run is no measure, but it is in the profile.
    n_runs = len(profiled_ns) // task.n_sessions + 1
    least: dict[str, int] = Counter()
    n_told: dict[str, int] = Counter()
    for session in profiled:
        for name, own in _read_durations(Path(session.end_profiling())):
            if len(own) == n_runs > 1:
                n_told[name] += 1
                least[name] += min(own[1:]) * _UNIT_NS + _UNIT_NS // 2
    ops_ns = {name: ns // n_told[name] for name, ns in least.items()}
    return {"times_ns": times_ns, "ops_ns": ops_ns}


def _run(
    task: WatchTask, feeds: Mapping[str, np.ndarray], instruments: Sequence[Instruments]
) -> tuple[list[onnxruntime.InferenceSession], list[int]]:
    """Return sessions and the times of their runs but the first, which sets up."""
    sessions = [make_session(task.model, task.settings, own) for own in instruments]
    bindings = [Binding(session, task.settings, feeds) for session in sessions]
    read_clock = choose_clock(task.settings)
    times_ns: list[int] = []
    deadline_ns = time.perf_counter_ns() + task.max_ns
    for binding in bindings:
        binding.run()
        binding.clear_outputs()
    for _ in range(task.max_rounds):
        if time.perf_counter_ns() > deadline_ns:
            break
        for binding in bindings:
            start_ns = read_clock()
            binding.run()
            times_ns.append(read_clock() - start_ns)
            binding.clear_outputs()
    return sessions, times_ns


def _read_durations(path: Path) -> Iterator[tuple[str, list[int]]]:
    """Yield each op and how long it took, run by run; the file goes."""
    durations: dict[str, list[int]] = defaultdict(list)
    for event in json.loads(path.read_bytes()):
        name = event.get("name", "")
        if event.get("cat") == "Node" and name.endswith(SUFFIX):
            durations[name.removesuffix(SUFFIX)].append(int(event["dur"]))
    path.unlink()
    yield from durations.items()
