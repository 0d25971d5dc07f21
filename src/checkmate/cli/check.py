"""``checkmate check``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import click

from checkmate.cli.fencing import read_fences
from checkmate.cli.options import (
    Percent,
    json_option,
    loss_option,
    provider_option,
)
from checkmate.cli.report import echo_note, print_table
from checkmate.cli.source import Asked, read_source
from checkmate.cli.trial import Rewriting, Trial, run_both
from checkmate.errors import MismatchError
from checkmate.formats.costs_json import digest_costs
from checkmate.formats.schedule_json import ScheduleRecord, read_schedule, resolve_instructions
from checkmate.plan import certify
from checkmate.problem import Problem
from checkmate.schedule import Schedule
from checkmate.simulate import Simulation, simulate
from checkmate.units import format_nbytes, format_nbytes_exactly, format_ns, format_ratio


@click.command("check")
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("schedule", type=click.Path(path_type=Path))
@click.option("--run", is_flag=True, help="Run both graphs; compare numbers, order and peak.")
@click.option("--costs", metavar="FILE", help="Costs to verify times and workspace with.")
@provider_option
@loss_option
@click.option(
    "--tolerance",
    type=Percent(),
    default="25%",
    show_default=True,
    help="How far the measured peak may be above the predicted one.",
)
@json_option
def command(
    model: Path,
    schedule: Path,
    run: bool,
    costs: str | None,
    provider: Literal["auto", "cuda", "cpu"],
    loss: str | None,
    tolerance: float,
    as_json: bool,
) -> None:
    """Certify SCHEDULE against MODEL, the model that it was solved from.

    With --run, the original and the rewritten graph run in child processes; their outputs are
    compared bit for bit, the executed order with the schedule, the measured peak with the plan.
    """
    record = read_schedule(schedule)
    asked = Asked(record.dims, loss, costs or "flops", provider)
    source = read_source(model, asked)
    source.check_digest(record)
    steps = resolve_instructions(record, source.problem.graph)
    document = _certify(source.problem, steps, record)
    if run:
        if source.model is None:
            raise MismatchError("a problem cannot run", hint="give the model it was made from")
        trial = run_both(Rewriting(source.model, steps, read_fences(record)), provider)
        _print_trial(trial, record)
        document |= trial.as_document()
        trial.judge(record, tolerance)
    if as_json:
        click.echo(json.dumps(document))


def _certify(problem: Problem, steps: Schedule, record: ScheduleRecord) -> dict[str, object]:
    """Simulate the schedule and compare it with what its file says.

    Without the costs that it was solved with, only its tensors can be verified.
    """
    has_costs = digest_costs(problem.graph, problem.costs) == record.costs_sha256
    simulation = simulate(problem, steps)
    peak_nbytes = simulation.peak.nbytes
    if peak_nbytes > record.budget_nbytes:
        raise MismatchError(
            f"the schedule needs {format_nbytes_exactly(peak_nbytes)}, more than its budget of"
            f" {format_nbytes_exactly(record.budget_nbytes)}"
        )
    if has_costs:
        _check_figures(record, simulation)
        certify(problem, steps, record.budget_nbytes, record.claim)
    verified = "peak and time" if has_costs else "peak of its tensors"
    echo_note(f"certified: {verified}; {format_nbytes(peak_nbytes)} of"
              f" {format_nbytes(record.budget_nbytes)}")  # fmt: skip
    if not has_costs:
        echo_note("time and workspace are not verified: give the costs with --costs FILE")
    return {
        "peak_nbytes": peak_nbytes,
        "budget_nbytes": record.budget_nbytes,
        "costs_verified": has_costs,
    }


def _check_figures(record: ScheduleRecord, simulation: Simulation) -> None:
    figures = (
        ("peak_nbytes", record.peak_nbytes, simulation.peak.nbytes),
        ("time_ns", record.time_ns, simulation.time_ns),
    )
    for name, stated, found in figures:
        if stated != found:
            raise MismatchError(f"the schedule states {name} {stated}, but simulates to {found}")
    if simulation.time_ns < record.claim.bound_ns:
        raise MismatchError(
            f"the schedule takes {simulation.time_ns} ns, less than its bound of"
            f" {record.claim.bound_ns} ns"
        )


def _print_trial(trial: Trial, record: ScheduleRecord) -> None:
    before, after = trial.original, trial.rewritten
    rows = [
        ("peak predicted", format_nbytes(record.baseline_peak_nbytes),
         format_nbytes(record.peak_nbytes)),
        ("peak measured", _format_peak(before.peak_nbytes), _format_peak(after.peak_nbytes)),
        ("time predicted", format_ns(record.baseline_time_ns), format_ns(record.time_ns)),
        ("time measured", format_ns(before.time_ns or 0), format_ns(after.time_ns or 0)),
        ("overhead predicted", "", format_ratio(record.time_ns, record.baseline_time_ns)),
        ("overhead measured", "", format_ratio(after.time_ns or 0, before.time_ns or 0)),
        ("outputs", "", "DIFFERENT" if trial.differences else "equal, bit for bit"),
        ("order", "", "as scheduled" if not trial.misplaced else "DIFFERENT"),
    ]  # fmt: skip
    print_table(("", "original", f"within {format_nbytes(record.budget_nbytes)}"), rows)
    if trial.is_single_threaded:
        echo_note(
            "outputs were compared with one thread: with several, they differ between runs of"
            " one graph too where onnxruntime's kernels race (ScatterND with a reduction)"
        )


def _format_peak(nbytes: int | None) -> str:
    return "not measured" if nbytes is None else format_nbytes(nbytes)
