"""``checkmate check``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import click

from checkmate.cli.certifying import certify_record
from checkmate.cli.fencing import read_fences
from checkmate.cli.options import (
    Percent,
    json_option,
    loss_option,
    provider_option,
    shapes_option,
)
from checkmate.cli.report import echo_note, print_table
from checkmate.cli.source import Asked, Source, is_document, read_source
from checkmate.cli.trial import Rewriting, Trial, run_both
from checkmate.errors import InputError, UsageError
from checkmate.formats.schedule_json import ScheduleRecord, read_schedule, resolve_instructions
from checkmate.units import format_nbytes, format_ns, format_ratio


@click.command("check")
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("schedule", type=click.Path(path_type=Path))
@click.option("--run", is_flag=True, help="Run both graphs; compare numbers, order and peak.")
@click.option("--costs", metavar="FILE", help="Costs to verify times and workspace with.")
@provider_option
@loss_option
@shapes_option
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
    shapes_from_run: bool,
    tolerance: float,
    as_json: bool,
) -> None:
    """Certify SCHEDULE against MODEL, the model that it was solved from.

    With --run, the original and the rewritten graph run in child processes; their outputs are
    compared bit for bit, the executed order with the schedule, the measured peak with the plan.
    """
    record = read_schedule(schedule)
    if run and is_document(model):
        raise UsageError("a problem file cannot run", hint="give the model that it was made from")
    has_arena = "arena_limit_nbytes" in record.runtime
    asked = Asked(record.dims, loss, costs or "flops", provider, has_arena, shapes_from_run)
    source = _read_source(model, record, asked)
    steps = resolve_instructions(record, source.problem.graph)
    document = certify_record(source.problem, steps, record, is_sure=costs is not None)
    if run and source.model is not None:
        trial = run_both(Rewriting(source.model, steps, read_fences(record)), provider)
        _print_trial(trial, record)
        document |= trial.as_document()
        trial.judge(record, tolerance)
    if as_json:
        click.echo(json.dumps(document))


def _read_source(model: Path, record: ScheduleRecord, asked: Asked) -> Source:
    """Return the model, or the problem, that ``record`` is for."""
    if is_document(model):
        asked = Asked({}, None, "auto")
    try:
        source = read_source(model, asked)
    except UsageError as error:
        raise InputError(f"the schedule does not fit the model: {error.message}") from error
    source.check_digest(record)
    return source


def _print_trial(trial: Trial, record: ScheduleRecord) -> None:
    before, after = trial.original, trial.rewritten
    rows = [
        ("peak predicted", format_nbytes(record.baseline_peak_nbytes),
         format_nbytes(record.peak_nbytes)),
        ("peak measured", _format_peak(before.peak_nbytes), _format_peak(after.peak_nbytes)),
        ("time predicted", format_ns(record.baseline_time_ns), format_ns(record.time_ns)),
        ("time measured", format_ns(before.time_ns or 0), format_ns(after.time_ns or 0)),
        ("sum of op costs / measured", _format_share(record.baseline_time_ns, before.time_ns),
         _format_share(record.time_ns, after.time_ns)),
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


def _format_share(part_ns: int, whole_ns: int | None) -> str:
    return f"{part_ns / whole_ns:.3f}" if whole_ns else "not measured"


def _format_peak(nbytes: int | None) -> str:
    return "not measured" if nbytes is None else format_nbytes(nbytes)
