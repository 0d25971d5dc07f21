"""The step of `bench/gpu_check.py` that compares fences with the order by priority."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from checkmate.onnxio.windows import FENCES, Fences
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.arrays import Difference, compare_outputs
from checkmate.runtime.execute import RunOptions, RunResult, run_model
from checkmate.runtime.protocol import Manner, Settings
from checkmate.trial.order import Order
from checkmate.trial.rewriting import Rewriting
from checkmate.trial.runs import N_RUNS, compare_order
from gpu_report import Check, Figures, Findings, judge, judge_most
from gpu_steps import Bench

_N_TIMED_RUNS = 5


@dataclass(frozen=True, slots=True)
class _Case:
    fences: Fences
    manner: Manner

    def __str__(self) -> str:
        order = "by priority" if self.manner == "scheduled" else "default options"
        return f"fences {self.fences}, {order}"

    @property
    def keeps_order(self) -> bool:
        """Without fences and priorities nothing does."""
        return self.manner == "scheduled" or self.fences != "none"

    @property
    def keeps_peak(self) -> bool:
        """Only an order that is the schedule's, op by op, has its peak."""
        return self.manner == "scheduled" or self.fences == "all"


def try_fences(bench: Bench) -> Findings:
    """Return time, peak and order of each choice of fences, by priority and under default options.

    Outputs are compared with those of no fences under the same options: bit for bit by priority,
    but for those that these runs do not repeat; to rounding under default options, which fuse.
    """
    figures: Figures = {}
    checks: list[Check] = []
    references: dict[Manner, RunResult] = {}
    manners: tuple[Manner, ...] = ("scheduled", "default-no-pattern")
    for fences in FENCES:
        path = bench.place(bench.plan, fences, "fences")
        for manner in manners:
            case = _Case(fences, manner)
            result = _run(path, case, bench)
            rewriting = Rewriting(bench.model, bench.plan.schedule, fences)
            order = compare_order(rewriting, manner, bench.device.provider, result)
            figures[str(case)] = {
                "time_ns": result.time_ns,
                "time_ratio": _divide(result, references.setdefault(manner, result)),
                "peak_nbytes": result.peak_nbytes,
                "meter": result.meter,
                "varying": len(result.varying),
                "ops_on_cpu": len(result.fallback),
                "misplaced": order.misplaced[:1],
            }
            checks += _judge(case, result, order, bench)
            checks.append(_judge_outputs(case, references[manner], result))
    return Findings({"planned_nbytes": bench.plan.peak.nbytes} | figures, tuple(checks))


def _run(path: Path, case: _Case, bench: Bench) -> RunResult:
    outputs = bench.folder / f"outputs-{case.fences}-{case.manner}.npz"
    options = RunOptions(
        Settings(bench.device.provider, manner=case.manner),
        n_runs=N_RUNS,
        n_timed_runs=_N_TIMED_RUNS,
        outputs=outputs,
    )
    return run_model(path, specify_inputs(bench.model), options)


def _divide(result: RunResult, reference: RunResult) -> float | None:
    if not result.time_ns or not reference.time_ns:
        return None
    return round(result.time_ns / reference.time_ns, 4)


def _judge(case: _Case, result: RunResult, order: Order, bench: Bench) -> Iterator[Check]:
    n_misplaced = len(order.misplaced)
    what = f"ops out of order, {case}"
    yield judge(what, n_misplaced, "0", holds=not n_misplaced, is_judged=case.keeps_order)
    is_counted = result.meter == "allocator"
    yield judge_most(
        f"peak, bytes, {case}",
        result.peak_nbytes if is_counted else None,
        bench.plan.budget_nbytes,
        is_judged=case.keeps_peak,
    )


def _judge_outputs(case: _Case, reference: RunResult, result: RunResult) -> Check:
    assert reference.outputs is not None
    assert result.outputs is not None
    differences = compare_outputs(reference.outputs, result.outputs)
    is_fusing, varying = case.manner != "scheduled", reference.varying
    may_round = [found for found in differences if is_fusing or found.name in varying]
    bad = [found for found in differences if not (found.is_rounding and found in may_round)]
    exact = f"none, bit for bit{f' but for {len(varying)} that vary' if varying else ''}"
    allowed = "none, to rounding" if is_fusing else exact
    return judge(f"outputs that differ, {case}", _name(bad), allowed, holds=not bad)


def _name(differences: list[Difference]) -> str:
    if not differences:
        return "none"
    first = differences[0]
    return f"{len(differences)}; {first.name!r} by up to {first.max_error:g}"
