"""Child side of a watch: how long each op takes among the others."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Mapping
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
    """Return the time of each run, and of each op, by its name, the least in any run.

    To record what ops take slows a run of small ones, so the runs of which the time is told are
    others. An op whose name another op within a body has too is left out, as is one that is not
    run.
    """
    feeds = make_inputs(task.specs, task.seed)
    times_ns = _run(task, feeds, Instruments())[1]
    profiled, profiled_ns = _run(task, feeds, Instruments(folder / "watch"))
    path = Path(profiled.end_profiling())
    durations = _read_durations(path)
    path.unlink()
    # The first run is no measure, but it is in the profile.
    n_runs = len(profiled_ns) + 1
    return {
        "times_ns": times_ns,
        "ops_ns": {
            name: min(own[1:]) * _UNIT_NS + _UNIT_NS // 2
            for name, own in durations.items()
            if len(own) == n_runs > 1
        },
    }


def _run(
    task: WatchTask, feeds: Mapping[str, np.ndarray], instruments: Instruments
) -> tuple[onnxruntime.InferenceSession, list[int]]:
    """Return a session and the time of each of its runs but the first, which sets up."""
    session = make_session(task.model, task.settings, instruments)
    binding = Binding(session, task.settings, feeds)
    read_clock = choose_clock(task.settings)
    binding.run()
    times_ns: list[int] = []
    deadline_ns = time.perf_counter_ns() + task.max_ns
    while len(times_ns) < task.max_runs and time.perf_counter_ns() < deadline_ns:
        binding.clear_outputs()
        start_ns = read_clock()
        binding.run()
        times_ns.append(read_clock() - start_ns)
    return session, times_ns


def _read_durations(path: Path) -> dict[str, list[int]]:
    durations: dict[str, list[int]] = defaultdict(list)
    for event in json.loads(path.read_bytes()):
        name = event.get("name", "")
        if event.get("cat") == "Node" and name.endswith(SUFFIX):
            durations[name.removesuffix(SUFFIX)].append(int(event["dur"]))
    return durations
