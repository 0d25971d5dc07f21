"""Child side of a run: order from the profile, bytes from the allocator, time from the clock."""

from __future__ import annotations

import ctypes
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime

from checkmate.runtime import resident
from checkmate.runtime.arrays import SavedArrays, save_arrays
from checkmate.runtime.capi import CApiError
from checkmate.runtime.counting import CountingAllocator
from checkmate.runtime.dtypes import ELEM_TYPES, NUMPY_DTYPES, is_native, raw_dtype
from checkmate.runtime.inputs import make_inputs
from checkmate.runtime.protocol import Meter, Reply, RunTask, Settings
from checkmate.runtime.session import (
    Instruments,
    choose_clock,
    make_session,
    needs_shared_arena,
    register_arena,
)

SUFFIX = "_kernel_time"
"""Of the name of an op, in the profile of a session."""


@dataclass(frozen=True, slots=True)
class _Measured:
    """What the measured runs showed."""

    meter: Meter
    session_nbytes: int
    """Taken when the session was made: weights, where it copies them."""
    run_nbytes: tuple[int, ...]
    """Per run: the most that was taken beside that; outputs included."""
    executed: tuple[str, ...]
    fallback: tuple[str, ...]
    varying: tuple[str, ...]
    """Outputs that were not the same, bit for bit, in every run."""


def run(task: RunTask, folder: Path) -> Reply:
    """Run the model of ``task`` and return what a `RunResult` is made of."""
    feeds = (
        SavedArrays(Path(task.feeds)).read_all()
        if task.feeds
        else make_inputs(task.specs, task.seed)
    )
    measured = _measure(task, feeds, folder) if task.n_runs else _skip()
    return {
        "inputs_nbytes": sum(array.nbytes for array in feeds.values()),
        "meter": measured.meter,
        "session_nbytes": measured.session_nbytes,
        "run_nbytes": list(measured.run_nbytes),
        "executed": list(measured.executed),
        "fallback": list(measured.fallback),
        "varying": list(measured.varying),
        "times_ns": _time_runs(task, feeds),
    }


def _skip() -> _Measured:
    return _Measured("none", 0, (), (), (), ())


def _measure(task: RunTask, feeds: Mapping[str, np.ndarray], folder: Path) -> _Measured:
    profile = folder / "profile"
    if task.meter == "allocator":
        allocator = CountingAllocator(task.settings)
        counted = Instruments(profile, shares_allocators=True)
        session = make_session(task.model, task.settings, counted)
        session_nbytes = allocator.in_use_nbytes
        runs = _repeat(task, session, feeds, _Counter(allocator))
        if allocator.n_allocations == 0:
            raise CApiError("sessions do not use the counting allocator")
    else:
        session = make_session(task.model, task.settings, Instruments(profile, has_arena=False))
        session_nbytes = 0
        has_pages = task.meter == "resident" and resident.is_measurable()
        runs = _repeat(task, session, feeds, _Pages() if has_pages else _Blind())
    executed, fallback = _read_profile(runs.profile, task.settings)
    return _Measured(task.meter, session_nbytes, runs.nbytes, executed, fallback, runs.varying)


class _Counter:
    """Meters a run by the counting allocator."""

    needs_warm_up = False

    def __init__(self, allocator: CountingAllocator) -> None:
        self._allocator = allocator

    def start(self) -> None:
        self._before_nbytes = self._allocator.in_use_nbytes
        self._allocator.reset_peak()

    def stop(self) -> list[int]:
        return [self._allocator.max_in_use_nbytes - self._before_nbytes]


class _Pages:
    """Meters a run by the resident set, to which code that is loaded in a first run belongs."""

    needs_warm_up = True

    def start(self) -> None:
        resident.reset_peak()
        self._before_nbytes = resident.read_resident_nbytes()

    def stop(self) -> list[int]:
        return [resident.read_peak_nbytes() - self._before_nbytes]


class _Blind:
    """Meters nothing."""

    needs_warm_up = False

    def start(self) -> None:
        """Do nothing."""

    def stop(self) -> list[int]:
        return []


@dataclass(frozen=True, slots=True)
class _Runs:
    nbytes: tuple[int, ...]
    profile: Path
    varying: tuple[str, ...]


def _repeat(
    task: RunTask,
    session: onnxruntime.InferenceSession,
    feeds: Mapping[str, np.ndarray],
    meter: _Counter | _Pages | _Blind,
) -> _Runs:
    """Run the session as often as asked; each run starts without the outputs of another."""
    binding = Binding(session, task.settings, feeds)
    if meter.needs_warm_up:
        binding.run()
        binding.clear_outputs()
    nbytes: list[int] = []
    first: dict[str, np.ndarray] = {}
    varying: dict[str, None] = {}
    for number in range(task.n_runs):
        meter.start()
        binding.run()
        nbytes.extend(meter.stop())
        outputs = binding.take_outputs()
        first = first if number else outputs
        varying |= {n: None for n in first if not _is_same(first[n], outputs[n])}
    if task.outputs:
        save_arrays(Path(task.outputs), first)
    return _Runs(tuple(nbytes), Path(session.end_profiling()), tuple(varying))


def _is_same(first: np.ndarray, second: np.ndarray) -> bool:
    return first.shape == second.shape and first.tobytes() == second.tobytes()


def _time_runs(task: RunTask, feeds: Mapping[str, np.ndarray]) -> list[int]:
    """Return the time of each timed run, in a session with nothing that measures memory."""
    if task.n_timed_runs == 0:
        return []
    is_shared = needs_shared_arena(task.settings)
    if is_shared:
        register_arena(task.settings)
    session = make_session(task.model, task.settings, Instruments(shares_allocators=is_shared))
    binding = Binding(session, task.settings, feeds)
    times_ns: list[int] = []
    read_clock = choose_clock(task.settings)
    # The first run pays for what is set up lazily.
    binding.run()
    deadline_ns = time.perf_counter_ns() + task.max_timed_ns
    while len(times_ns) < task.n_timed_runs:
        if times_ns and time.perf_counter_ns() > deadline_ns:
            break
        binding.clear_outputs()
        start_ns = read_clock()
        binding.run()
        times_ns.append(read_clock() - start_ns)
    return times_ns


class Binding:
    """Inputs on the device, outputs left there until they are taken."""

    def __init__(
        self,
        session: onnxruntime.InferenceSession,
        settings: Settings,
        feeds: Mapping[str, np.ndarray],
    ) -> None:
        self._session = session
        self._settings = settings
        self._binding = session.io_binding()
        # A graph may list an output twice; it is bound once.
        outputs = {output.name: output for output in session.get_outputs()}
        self._names = tuple(outputs)
        self._outputs = tuple(outputs.values())
        known = {item.name for item in session.get_inputs()}
        # The session does not own its inputs; they must live as long as it runs.
        self._inputs = {
            name: make_value(array, settings) for name, array in feeds.items() if name in known
        }
        for name, value in self._inputs.items():
            self._binding.bind_ortvalue_input(name, value)
        self.clear_outputs()

    def clear_outputs(self) -> None:
        """Let go of the outputs of the last run."""
        self._binding.clear_binding_outputs()
        for output in self._outputs:
            is_raw = output.type in ("tensor(bfloat16)",) or "float8" in output.type
            on_device = self._settings.provider == "cuda" and not is_raw
            device = "cuda" if on_device else "cpu"
            self._binding.bind_output(output.name, device, self._settings.device_id)

    def run(self) -> None:
        """Run once; returns when the device is done."""
        self._session.run_with_iobinding(self._binding)
        self._binding.synchronize_outputs()

    def count_outputs_nbytes(self) -> int:
        """Return the bytes of the outputs of the last run."""
        return sum(value.tensor_size_in_bytes() for value in self._binding.get_outputs())

    def take_outputs(self) -> dict[str, np.ndarray]:
        """Return copies of the outputs of the last run, and let go of them."""
        values = self._binding.get_outputs()
        arrays = {n: _copy_value(v) for n, v in zip(self._names, values, strict=True)}
        del values
        self.clear_outputs()
        return arrays


def make_value(array: np.ndarray, settings: Settings) -> onnxruntime.OrtValue:
    """Return ``array`` on the device."""
    elem_type = ELEM_TYPES[array.dtype]
    device = "cuda" if settings.provider == "cuda" else "cpu"
    if is_native(elem_type):
        return onnxruntime.OrtValue.ortvalue_from_numpy(array, device, settings.device_id)
    raw = array.view(raw_dtype(array.dtype))
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(raw, elem_type)


def _copy_value(value: onnxruntime.OrtValue) -> np.ndarray:
    elem_type = value.element_type()
    if is_native(elem_type):
        return np.array(value.numpy())
    # onnxruntime knows no numpy type for these, so their bytes are read where they lie.
    raw = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    return np.frombuffer(raw, NUMPY_DTYPES[elem_type]).reshape(value.shape())


def _read_profile(path: Path, settings: Settings) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the ops in executed order, and those that ran on another provider than asked."""
    events = list(_find_node_events(json.loads(path.read_text())))
    executed = tuple(name for name, _ in events)
    wanted = settings.provider.upper()
    fallback = tuple(name for name, provider in events if not provider.startswith(wanted))
    return executed, fallback


def _find_node_events(document: list[dict[str, object]]) -> Iterator[tuple[str, str]]:
    """Yield the name and the provider of each op of the first run."""
    for event in document:
        name, arguments = str(event.get("name", "")), event.get("args")
        if event.get("cat") == "Node" and name.endswith(SUFFIX) and isinstance(arguments, dict):
            yield name.removesuffix(SUFFIX), str(arguments.get("provider", ""))
        if name == "model_run":
            return
