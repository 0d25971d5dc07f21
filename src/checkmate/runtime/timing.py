"""Child side of timing: a model whose outputs are bound beforehand, again and again."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import onnxruntime

from checkmate.runtime.capi import CApiError
from checkmate.runtime.counting import CountingAllocator
from checkmate.runtime.inputs import make_inputs
from checkmate.runtime.protocol import Reply, Settings, TensorSpec, TimeTask
from checkmate.runtime.running import Binding, make_value
from checkmate.runtime.session import Instruments, choose_clock, make_session

_LONG_NS = 100_000_000
_N_WARM_CPU = 2
_N_WARM_CUDA = 5
"""cuDNN picks its plans in the first runs, and clocks rise."""


class Stopwatch:
    """Times models; keeps its counting allocator, which sessions may still hold."""

    def __init__(self, folder: Path) -> None:
        self._statistics = folder / "node-memory.csv"
        self._allocator: CountingAllocator | None = None
        self._can_count = True

    def __call__(self, task: TimeTask) -> Reply:
        """Return the time of the first run and of each warm one, and the most workspace of any op.

        The first pays for what is set up lazily, so it is no cost of the op.
        """
        run = _BoundRun(task, make_session(task.model, task.settings, Instruments()))
        cold_ns = _time(run, time.perf_counter_ns)
        times_ns = _repeat(task, run, cold_ns)
        del run
        workspace_nbytes = self._find_workspace(task)
        return {"cold_ns": cold_ns, "times_ns": times_ns, "workspace_nbytes": workspace_nbytes}

    def _find_workspace(self, task: TimeTask) -> int:
        allocator = None
        if task.workspace_by == "allocator" and self._can_count:
            allocator = self._find_allocator(task.settings)
        return self._read_statistics(task) if allocator is None else _count(task, allocator)

    def _find_allocator(self, settings: Settings) -> CountingAllocator | None:
        if self._allocator is None:
            try:
                self._allocator = CountingAllocator(settings)
            except CApiError:
                self._can_count = False
        return self._allocator

    def _read_statistics(self, task: TimeTask) -> int:
        """Return the largest number in the last column of onnxruntime's statistics."""
        session = make_session(task.model, task.settings, Instruments(statistics=self._statistics))
        _BoundRun(task, session)()
        lines = self._statistics.read_text().splitlines()
        rows = [line.split(",") for line in lines if line and not line.startswith("#")]
        return max((int(row[-1]) for row in rows), default=0)


def _count(task: TimeTask, allocator: CountingAllocator) -> int:
    """Return the most that a run takes beside its inputs and outputs.

    The run makes its outputs itself: an op that makes them last, when it has let go of something
    else, takes that much less.
    """
    counted = Instruments(shares_allocators=True)
    session = make_session(task.model, task.settings, counted)
    binding = Binding(session, task.settings, make_inputs(task.inputs, task.seed))
    before_nbytes = allocator.in_use_nbytes
    allocator.reset_peak()
    binding.run()
    used_nbytes = allocator.max_in_use_nbytes - before_nbytes
    return max(0, used_nbytes - binding.count_outputs_nbytes())


class _BoundRun:
    """A session with everything bound; a call runs it once, until the device is done."""

    def __init__(self, task: TimeTask, session: onnxruntime.InferenceSession) -> None:
        self._session = session
        self._binding = session.io_binding()
        feeds = make_inputs(task.inputs, task.seed)
        self._values = {name: make_value(array, task.settings) for name, array in feeds.items()}
        for name, value in self._values.items():
            self._binding.bind_ortvalue_input(name, value)
        for spec in task.outputs:
            self._values[spec.name] = allocate(spec, task.settings)
            self._binding.bind_ortvalue_output(spec.name, self._values[spec.name])

    def __call__(self) -> None:
        self._session.run_with_iobinding(self._binding)
        # A run ends with that itself; to time without it would time launches.
        self._binding.synchronize_outputs()


def allocate(spec: TensorSpec, settings: Settings) -> onnxruntime.OrtValue:
    """Return memory for the output ``spec`` where it is made, so that a run copies nothing."""
    device = "cuda" if settings.provider == "cuda" and not spec.on_host else "cpu"
    return onnxruntime.OrtValue.ortvalue_from_shape_and_type(
        list(spec.shape), spec.elem_type, device, settings.device_id
    )


def _repeat(task: TimeTask, run: _BoundRun, cold_ns: int) -> list[int]:
    """Warm up more unless that is long, then run until there are enough runs or the time is up."""
    read_clock = choose_clock(task.settings)
    if cold_ns < _LONG_NS:
        for _ in range(_N_WARM_CUDA if task.settings.provider == "cuda" else _N_WARM_CPU):
            run()
    deadline_ns = time.perf_counter_ns() + task.max_ns
    times_ns = [_time(run, read_clock)]
    while len(times_ns) < task.max_runs and time.perf_counter_ns() < deadline_ns:
        times_ns.append(_time(run, read_clock))
    return times_ns


def _time(run: _BoundRun, read_clock: Callable[[], int]) -> int:
    start_ns = read_clock()
    run()
    return read_clock() - start_ns
