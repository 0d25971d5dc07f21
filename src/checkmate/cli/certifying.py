"""A schedule file against what its instructions do in the simulator."""

from __future__ import annotations

from collections.abc import Iterable

from checkmate.arena import is_within
from checkmate.cli.fencing import adapt, read_fences
from checkmate.cli.report import echo_note
from checkmate.engine.solve import run_baseline
from checkmate.errors import InputError, MismatchError
from checkmate.formats.costs_json import digest_costs
from checkmate.formats.schedule_json import ScheduleRecord
from checkmate.plan import certify
from checkmate.problem import Problem
from checkmate.schedule import Schedule
from checkmate.simulate import Simulation, simulate
from checkmate.units import format_nbytes, format_nbytes_exactly


def certify_record(
    problem: Problem, steps: Schedule, record: ScheduleRecord, *, is_sure: bool
) -> dict[str, object]:
    """Simulate the schedule, compare it with what its file says, and return the verdict.

    Without the costs that it was solved with, only its tensors can be verified; ``is_sure`` says
    that ``problem`` has them. Raises `MismatchError` where file and simulation differ.
    """
    problem = adapt(problem, read_fences(record))
    has_costs = digest_costs(problem.graph, problem.costs) == record.costs_sha256
    if not has_costs and is_sure:
        raise InputError("these are not the costs that the schedule was solved with")
    if not has_costs and record.origin.source == "flops":
        raise MismatchError("the schedule was solved with other costs than its model counts")
    simulation = simulate(problem, steps)
    peak_nbytes = simulation.peak.nbytes
    if peak_nbytes > record.budget_nbytes:
        raise MismatchError(
            f"the schedule needs {format_nbytes_exactly(peak_nbytes)}, more than its budget of"
            f" {format_nbytes_exactly(record.budget_nbytes)}"
        )
    _compare(_list_own_figures(problem, record))
    if has_costs:
        _compare(_list_simulated_figures(problem, simulation, record))
    _check_bounds(record)
    if has_costs:
        _check_arena(problem, steps, record)
    verified = "peak and time" if has_costs else "peak of its tensors"
    budget = format_nbytes(record.budget_nbytes)
    echo_note(f"certified: {verified}; {format_nbytes(peak_nbytes)} of {budget}")
    if not has_costs:
        echo_note("time and workspace are not verified: give the costs with --costs FILE")
    return {
        "peak_nbytes": peak_nbytes,
        "budget_nbytes": record.budget_nbytes,
        "costs_verified": has_costs,
    }


def _check_arena(problem: Problem, steps: Schedule, record: ScheduleRecord) -> None:
    if not is_within(problem, steps, record.budget_nbytes):
        raise MismatchError(
            "the arena of the schedule does not fit in its budget of"
            f" {format_nbytes_exactly(record.budget_nbytes)}"
        )
    plan = certify(problem, steps, record.budget_nbytes, record.claim)
    stated = record.peak.fragmentation_nbytes
    if stated != plan.fragmentation_nbytes:
        raise MismatchError(
            f"the schedule states fragmentation_nbytes {stated}, but simulates to"
            f" {plan.fragmentation_nbytes}"
        )


_Figures = Iterable[tuple[str, object, object]]
"""Name, what the file states, what it should be."""


def _list_own_figures(problem: Problem, record: ScheduleRecord) -> _Figures:
    """Yield what follows from the file and the graph alone."""
    peak = record.peak
    parts = (peak.resident_nbytes, peak.live_nbytes, peak.workspace_nbytes)
    yield "graph ops", record.graph.n_ops, len(problem.graph.ops)
    yield "graph tensors", record.graph.n_tensors, len(problem.graph.tensors)
    yield "peak_nbytes", record.peak_nbytes, sum(parts)


def _list_simulated_figures(
    problem: Problem, simulation: Simulation, record: ScheduleRecord
) -> _Figures:
    baseline, found, stated = run_baseline(problem), simulation.peak, record.peak
    yield "time_ns", record.time_ns, simulation.time_ns
    yield "baseline_time_ns", record.baseline_time_ns, baseline.time_ns
    yield "peak_nbytes", record.peak_nbytes, found.nbytes
    yield "baseline_peak_nbytes", record.baseline_peak_nbytes, baseline.peak.nbytes
    yield "peak live_nbytes", stated.live_nbytes, found.live_nbytes
    yield "peak workspace_nbytes", stated.workspace_nbytes, found.workspace_nbytes
    yield "peak op", stated.op, "" if found.op is None else problem.graph.ops[found.op].name


def _compare(figures: _Figures) -> None:
    for name, stated, found in figures:
        if stated != found:
            raise MismatchError(f"the schedule states {name} {stated}, but simulates to {found}")


def _check_bounds(record: ScheduleRecord) -> None:
    if record.time_ns < record.claim.bound_ns:
        raise MismatchError(
            f"the schedule takes {record.time_ns} ns, less than its bound of"
            f" {record.claim.bound_ns} ns"
        )
    if record.peak_nbytes > record.budget_nbytes:
        raise MismatchError(
            f"the schedule states a peak of {record.peak_nbytes} B, more than its budget of"
            f" {record.budget_nbytes} B"
        )
