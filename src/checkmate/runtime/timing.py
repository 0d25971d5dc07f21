"""Child side of timing: a model whose outputs are bound beforehand, again and again."""

from __future__ import annotations

import time
from collections.abc import Callable

import onnxruntime

from checkmate.runtime.capi import CApiError
from checkmate.runtime.counting import CountingAllocator
from checkmate.runtime.inputs import make_inputs
from checkmate.runtime.protocol import Reply, Settings, TensorSpec, TimeTask
from checkmate.runtime.running import make_value
from checkmate.runtime.session import choose_clock, make_session

_LONG_NS = 100_000_000
_N_WARM_CPU = 2
_N_WARM_CUDA = 5
"""cuDNN picks its plans in the first runs, and clocks rise."""


class Stopwatch:
    """Times models; keeps its counting allocator, which sessions may still hold."""

    def __init__(self) -> None:
        self._allocator: CountingAllocator | None = None
        self._can_count = True

    def __call__(self, task: TimeTask) -> Reply:
        """Return the time of each run, and the workspace of one where it can be counted."""
        run = _bind(task, shares_allocators=False)
        times_ns = _repeat(task, run)
        del run
        workspace = self._count_workspace(task) if task.counts_workspace else None
        return {"times_ns": times_ns, "workspace_nbytes": workspace}

    def _count_workspace(self, task: TimeTask) -> int | None:
        """Return the most that a run takes beside its bound inputs and outputs."""
        allocator = self._find_allocator(task.settings)
        if allocator is None:
            return None
        run = _bind(task, shares_allocators=True)
        before_nbytes = allocator.in_use_nbytes
        allocator.reset_peak()
        run()
        return allocator.max_in_use_nbytes - before_nbytes

    def _find_allocator(self, settings: Settings) -> CountingAllocator | None:
        if self._allocator is None and self._can_count:
            try:
                self._allocator = CountingAllocator(settings)
            except CApiError:
                self._can_count = False
        return self._allocator


class _BoundRun:
    """A session with everything bound; a call runs it once."""

    def __init__(self, session: onnxruntime.InferenceSession, task: TimeTask) -> None:
        self._session = session
        self._binding = session.io_binding()
        feeds = make_inputs(task.inputs, task.seed)
        self._values = {name: make_value(array, task.settings) for name, array in feeds.items()}
        for name, value in self._values.items():
            self._binding.bind_ortvalue_input(name, value)
        for spec in task.outputs:
            self._values[spec.name] = _allocate(spec, task.settings)
            self._binding.bind_ortvalue_output(spec.name, self._values[spec.name])

    def __call__(self) -> None:
        self._session.run_with_iobinding(self._binding)


def _bind(task: TimeTask, *, shares_allocators: bool) -> _BoundRun:
    session = make_session(task.model, task.settings, shares_allocators=shares_allocators)
    return _BoundRun(session, task)


def _allocate(spec: TensorSpec, settings: Settings) -> onnxruntime.OrtValue:
    device = "cuda" if settings.provider == "cuda" else "cpu"
    return onnxruntime.OrtValue.ortvalue_from_shape_and_type(
        list(spec.shape), spec.elem_type, device, settings.device_id
    )


def _repeat(task: TimeTask, run: _BoundRun) -> list[int]:
    """Warm up, then run until there are enough runs or the time is up."""
    read_clock = choose_clock(task.settings)
    if _time(run, time.perf_counter_ns) < _LONG_NS:
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
