"""The steps of `bench/gpu_check.py` that no command of checkmate has; each returns its figures."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import onnx

from checkmate.arena import count_outside_nbytes, find_arena_peak
from checkmate.cli.source import Asked, read_source
from checkmate.engine.solve import run_baseline, solve
from checkmate.errors import OutOfMemoryError
from checkmate.onnxio.fence_maker import PREFIX
from checkmate.onnxio.model import Model
from checkmate.onnxio.order import HOISTED_OPS
from checkmate.onnxio.read import read_model
from checkmate.onnxio.windows import FENCES, Fences
from checkmate.onnxio.write import render_model
from checkmate.plan import Plan
from checkmate.problem import Problem
from checkmate.profiler.kernels import find_unplaced
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.device import RESERVE_NBYTES, Device, count_whole_budget_nbytes
from checkmate.runtime.execute import RunOptions, RunResult, run_model
from checkmate.runtime.protocol import Layout, Settings
from checkmate.search.finding import Limits

Figures = dict[str, object]
LAYOUTS: tuple[Layout, ...] = ("region", "requests")
SHARE = 75
"""Budget of the arena steps, in percent of the peak without recompute."""


@dataclass(frozen=True, slots=True)
class Bench:
    """A graph on a device, solved for an arena within a budget."""

    model: Model
    problem: Problem
    plan: Plan
    device: Device
    folder: Path

    @property
    def limit_nbytes(self) -> int:
        """What the budget leaves to the arena."""
        assert self.problem.arena is not None
        outside_nbytes = count_outside_nbytes(self.problem.graph, self.problem.arena)
        return self.plan.budget_nbytes - outside_nbytes


def prepare(path: Path, dims: dict[str, int], costs: Path, device: Device, folder: Path) -> Bench:
    """Return the graph in ``path``, ready to run; ``costs`` were measured on ``device``."""
    asked = Asked(dims, costs=str(costs), provider=device.provider, arena=True, optimize=None)
    source = read_source(path, asked)
    assert source.model is not None
    budget_nbytes = run_baseline(source.problem).peak.nbytes * SHARE // 100
    plan = solve(source.problem, budget_nbytes, "greedy", Limits())
    return Bench(source.model, source.problem, plan, device, folder)


def survey_device(device: Device, model: Path, dims: dict[str, int]) -> Figures:
    """Return the memory of the device, and what a process takes of it beside its arena.

    The reserve of `--budget device` has to cover the latter.
    """
    figures: Figures = {
        "memory_nbytes": device.nbytes,
        "budget_device_nbytes": count_whole_budget_nbytes(device),
        "reserve_nbytes": RESERVE_NBYTES,
    }
    if device.provider == "cuda":
        figures["outside_nbytes"] = _measure_outside(model, dims)
    return figures


def _measure_outside(path: Path, dims: dict[str, int]) -> int:
    """Return the most that the device holds during runs beside a process without a session.

    From the driver's management library: all processes count, so no other may start or end.
    Inputs and the arena are part of it; the batch is small.
    """
    specs = specify_inputs(read_model(path, dims))
    with _watch_device() as seen:
        run_model(path, specs, RunOptions(Settings("cuda"), n_runs=0, n_timed_runs=200))
    return max(seen) - seen[0]


@contextmanager
def _watch_device() -> Iterator[list[int]]:
    """Yield a list to which the used bytes of the first device are added, many times a second."""
    library = ctypes.CDLL("libnvidia-ml.so.1")
    handle = ctypes.c_void_p()
    library.nvmlInit_v2()
    library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle))
    numbers = (ctypes.c_ulonglong * 3)()
    seen: list[int] = []
    is_over = threading.Event()

    def look() -> None:
        library.nvmlDeviceGetMemoryInfo(handle, numbers)
        seen.append(numbers[2])

    def watch() -> None:
        while not is_over.wait(0.02):
            look()

    look()
    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        is_over.set()
        thread.join()
        library.nvmlShutdown()


def find_kernels(bench: Bench) -> Figures:
    """Return the ops that the provider has no kernel for."""
    unplaced = find_unplaced(bench.model, bench.device.provider)
    return {
        "ops": sum(len(kind.ops) for kind in unplaced),
        "kinds": [[kind.op_type, len(kind.ops), kind.reason] for kind in unplaced],
    }


def try_arenas(bench: Bench) -> Figures:
    """Return the smallest arenas that work, of one region and of regions by request.

    Beside them the predicted one, and whether both graphs run in the limit that the budget leaves:
    the rewritten one should, the original should not.
    """
    assert bench.problem.arena is not None
    arena = find_arena_peak(bench.problem, bench.plan.schedule, bench.problem.arena)
    rewritten = _write(bench, "none")
    low = arena.live_nbytes * 3 // 4
    return {
        "limit_nbytes": bench.limit_nbytes,
        "predicted_nbytes": arena.reserved_nbytes,
        "live_nbytes": arena.live_nbytes,
        "rewritten_fits": _fits(bench, rewritten, bench.limit_nbytes),
        "original_fits": _fits(bench, bench.model.path, bench.limit_nbytes),
    } | {
        f"smallest_{layout}_nbytes": _find_smallest(bench, rewritten, low, layout)
        for layout in LAYOUTS
    }


def _find_smallest(bench: Bench, path: Path, low_nbytes: int, layout: Layout) -> int | str:
    """Return the smallest limit that works, to within 2 %, or why none was found."""
    low, high = low_nbytes, low_nbytes * 4 // 3
    try:
        while not _fits(bench, path, high, layout):
            low, high = high, high * 5 // 4
            if high > 8 * low_nbytes:
                return f"nothing up to {low:,} B works"
        while high - low > high // 50:
            middle = (low + high) // 2
            if _fits(bench, path, middle, layout):
                high = middle
            else:
                low = middle
    except Exception as error:  # an arena of one region on CUDA is a trial: its failure is a result
        return str(error)[:300]
    return high


def _fits(bench: Bench, path: Path, limit_nbytes: int, layout: Layout | None = None) -> bool:
    settings = Settings(
        bench.device.provider, arena_limit_nbytes=limit_nbytes // 256 * 256, layout=layout
    )
    options = RunOptions(settings, n_runs=0, n_timed_runs=2)
    try:
        run_model(path, specify_inputs(bench.model), options)
    except OutOfMemoryError:
        return False
    return True


def try_fences(bench: Bench) -> Figures:
    """Return time, peak and order of each choice of fences under both kinds of options."""
    figures: Figures = {}
    for fences in FENCES:
        path = _write(bench, fences)
        named = [
            node.name
            for node in onnx.load(path).graph.node
            if node.op_type not in HOISTED_OPS and not node.name.startswith(PREFIX)
        ]
        for manner in ("scheduled", "default-no-pattern"):
            settings = Settings(bench.device.provider, manner=manner)
            result = run_model(
                path, specify_inputs(bench.model), RunOptions(settings, n_timed_runs=5)
            )
            figures[f"{fences}, {manner}"] = _describe(result, named, bench)
    return figures


def _write(bench: Bench, fences: Fences) -> Path:
    path = bench.folder / f"{bench.model.path.stem}-{fences}.onnx"
    path.write_bytes(render_model(bench.model, bench.plan.schedule, path, fences))
    return path


def _describe(result: RunResult, named: list[str], bench: Bench) -> Figures:
    ran = set(result.executed)
    known = set(named)
    return {
        "time_ns": result.time_ns,
        "peak_nbytes": result.peak_nbytes,
        "planned_nbytes": bench.plan.peak.nbytes,
        "meter": result.meter,
        "order_kept": [n for n in named if n in ran] == [n for n in result.executed if n in known],
        "ops_on_cpu": len(result.fallback),
    }
