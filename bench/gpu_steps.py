"""The steps of `bench/gpu_check.py` about the device, plans, and what runs where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from checkmate.cli.source import Asked, read_source
from checkmate.engine.min_budget import quote_min_budget
from checkmate.engine.solve import Hints, run_baseline, solve
from checkmate.errors import InfeasibleError, NotFoundError
from checkmate.onnxio.model import Model
from checkmate.onnxio.read import read_model
from checkmate.onnxio.windows import Fences
from checkmate.onnxio.write import render_model, render_planned
from checkmate.placement import ArenaRules
from checkmate.plan import Plan
from checkmate.problem import Problem
from checkmate.profiler.kernels import Unplaced, find_unplaced
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.device import RESERVE_NBYTES, Device, count_whole_budget_nbytes
from checkmate.runtime.execute import RunOptions, run_model
from checkmate.runtime.protocol import Settings
from checkmate.search.finding import Limits
from gpu_report import Check, Figures, Findings, judge, judge_most
from gpu_watch import find_bus_id, watch_device

SHARE = 75
"""Budget of these steps, in percent of the peak without recompute."""
MOST_ON_CPU_NBYTES = 4096
"""What an op that runs on the CPU by onnxruntime's own choice may make: it takes sizes there."""
_SOLVE_S = 20.0


@dataclass(frozen=True, slots=True)
class Bench:
    """A graph on a device, and a plan that fits a budget in bytes."""

    model: Model
    problem: Problem
    """Without the arena."""
    rules: ArenaRules
    """Of the arena that sessions get."""
    plan: Plan
    device: Device
    folder: Path

    def place_original(self) -> Path:
        """Write the graph as it is planned; its file may hold it as it was before."""
        path = self.folder / f"{self.model.path.stem}-planned.onnx"
        path.write_bytes(render_planned(self.model, path))
        return path

    def place(self, plan: Plan, fences: Fences, name: str) -> Path:
        """Write the graph that runs ``plan`` to a file of its own."""
        path = self.folder / f"{self.model.path.stem}-{name}-{fences}.onnx"
        path.write_bytes(render_model(self.model, plan.schedule, path, fences))
        return path


def prepare(path: Path, dims: dict[str, int], costs: Path, device: Device, folder: Path) -> Bench:
    """Return the graph in ``path``, ready to run; ``costs`` were measured on ``device``.

    ``path`` may also be the optimized graph that the costs are of.
    """
    asked = Asked(dims, costs=str(costs), provider=device.provider, arena=True, optimize=None)
    source = read_source(path, asked)
    assert source.model is not None
    assert source.problem.arena is not None
    problem = replace(source.problem, arena=None)
    return Bench(source.model, problem, source.problem.arena, find_plan(problem), device, folder)


def find_plan(problem: Problem) -> Plan:
    """Return a plan within `SHARE` percent, or the smallest budget that is known to work."""
    limits = Limits(time_s=_SOLVE_S)
    budget_nbytes = run_baseline(problem).peak.nbytes * SHARE // 100
    try:
        return solve(problem, budget_nbytes, "greedy", limits)
    except (InfeasibleError, NotFoundError):
        smallest = quote_min_budget(problem, limits)
        budget_nbytes = max(budget_nbytes, smallest.nbytes)
        return solve(problem, budget_nbytes, "greedy", limits, Hints(smallest.order))


def describe_plan(bench: Bench) -> Findings:
    """Return what the plan of ``bench`` is, and whether it is one within its budget."""
    baseline, plan = run_baseline(bench.problem), bench.plan
    figures: Figures = {
        "baseline_peak_nbytes": baseline.peak.nbytes,
        "budget_nbytes": plan.budget_nbytes,
        "peak_nbytes": plan.peak.nbytes,
        "overhead": round(plan.time_ns / max(1, baseline.time_ns) - 1, 4),
    }
    return Findings(figures, (judge_most("peak, bytes", plan.peak.nbytes, plan.budget_nbytes),))


def survey_device(device: Device, models: Sequence[Path], dims: dict[str, int]) -> Findings:
    """Return the memory of the device, and what a process takes of it beside its arena.

    The reserve of `--budget device` has to cover the latter, whichever of ``models`` it runs.
    """
    figures: Figures = {
        "memory_nbytes": device.nbytes,
        "budget_device_nbytes": count_whole_budget_nbytes(device),
        "reserve_nbytes": RESERVE_NBYTES,
    }
    if device.provider != "cuda":
        return Findings(figures)
    outside = {path.stem: _measure_outside(path, dims) for path in models}
    figures |= {"bus_id": find_bus_id().decode(), "outside_nbytes": outside}
    most_nbytes = max(outside.values())
    return Findings(figures, (judge_most("outside, bytes", most_nbytes, RESERVE_NBYTES),))


def _measure_outside(path: Path, dims: dict[str, int]) -> int:
    """Return the most that the device holds during runs beside a process without a session.

    Inputs and the arena are part of it; the batch is small.
    """
    specs = specify_inputs(read_model(path, dims))
    with watch_device(find_bus_id()) as seen:
        run_model(path, specs, RunOptions(Settings("cuda"), n_runs=0, n_timed_runs=50))
    return seen.count_added_nbytes()


def find_kernels(bench: Bench) -> Findings:
    """Return the ops without a kernel, and whether all that ran on the CPU was named.

    onnxruntime also takes ops that compute sizes to the CPU, where these have a kernel.
    """
    unplaced = find_unplaced(bench.model, bench.device.provider)
    figures: Figures = {
        "ops": sum(len(kind.ops) for kind in unplaced),
        "kinds": [[kind.op_type, len(kind.ops), kind.reason] for kind in unplaced],
    }
    refused = [kind.op_type for kind in unplaced if kind.reason is not None]
    check = judge("kinds of ops refused", ", ".join(refused) or "none", "none", holds=not refused)
    if refused:
        return Findings(figures, (check,))
    settings = Settings(bench.device.provider)
    result = run_model(bench.place_original(), specify_inputs(bench.model), RunOptions(settings))
    return Findings(
        figures | {"ops_on_cpu": len(result.fallback)},
        (check, *judge_fallback(bench.model, unplaced, result.fallback)),
    )


def judge_fallback(
    model: Model, unplaced: Sequence[Unplaced], fallback: Sequence[str]
) -> tuple[Check, ...]:
    """Return whether the ops of ``fallback``, which ran on the CPU, were named before."""
    named = {name for kind in unplaced for name in kind.ops}
    tensors = model.graph.tensors
    sizes = {
        op.name: sum(tensors[output].nbytes for output in op.outputs) for op in model.graph.ops
    }
    others = [name for name in fallback if name not in named]
    largest = max(others, key=lambda name: sizes.get(name, 0), default="")
    most_nbytes = sizes.get(largest, 0)
    what = f"bytes made on the CPU by an op that was not named{largest and f', {largest}'}"
    return (
        judge(
            "ops on the CPU that were not named", len(others), "any", holds=True, is_judged=False
        ),
        judge_most(what, most_nbytes, MOST_ON_CPU_NBYTES),
    )
