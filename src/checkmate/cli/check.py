"""``checkmate check``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import click

from checkmate.cli.certifying import certify_record
from checkmate.cli.drift import check_drift
from checkmate.cli.fencing import read_fences
from checkmate.cli.options import (
    Percent,
    json_option,
    loss_option,
    provider_option,
    shapes_option,
)
from checkmate.cli.report import echo_note
from checkmate.cli.source import Asked, Source, is_document, read_source_of
from checkmate.cli.verdicts import make_document, print_trial
from checkmate.errors import InputError, MismatchError, UsageError
from checkmate.formats.schedule_json import ScheduleRecord, read_schedule, resolve_instructions
from checkmate.onnxio.model import Model
from checkmate.runtime.device import probe_device
from checkmate.trial.judgement import Terms, judge
from checkmate.trial.rewriting import Rewriting, require_alike
from checkmate.trial.runs import run_trial


@click.command("check")
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("schedule", type=click.Path(path_type=Path))
@click.option("--run", is_flag=True, help="Run both graphs; compare numbers, order and peak.")
@click.option(
    "--onnx",
    "written",
    type=click.Path(path_type=Path),
    help="Rewritten model to run; by default it is written anew.",
)
@click.option("--costs", metavar="FILE", help="Costs to verify times and workspace with.")
@provider_option
@loss_option
@shapes_option
@click.option(
    "--tolerance",
    type=Percent(),
    default="0%",
    show_default=True,
    help="How far measured peaks may be above the budget.",
)
@json_option
def command(
    model: Path,
    schedule: Path,
    run: bool,
    written: Path | None,
    costs: str | None,
    provider: Literal["auto", "cuda", "cpu"],
    loss: str | None,
    shapes_from_run: bool,
    tolerance: float,
    as_json: bool,
) -> None:
    """Certify SCHEDULE against MODEL, the model that it was solved from.

    With --run, the original and the rewritten graph run in child processes, under the options
    that the schedule names and under onnxruntime's defaults: outputs are compared, the executed
    order with the schedule, the peak of each run with the budget; and in an arena that cannot grow
    past the budget the rewritten graph has to complete, and the original to fail.
    """
    if written is not None and not run:
        raise UsageError("--onnx names a model to run", hint="add --run")
    record = read_schedule(schedule)
    if run and is_document(model):
        raise UsageError("a problem file cannot run", hint="give the model that it was made from")
    has_arena = "arena_limit_nbytes" in record.runtime
    asked = Asked(
        record.dims,
        loss,
        costs or "flops",
        provider,
        has_arena,
        shapes_from_run=shapes_from_run,
    )
    source = _read_source(model, record, asked)
    steps = resolve_instructions(record, source.problem.graph)
    document = certify_record(source.problem, steps, record, is_sure=costs is not None)
    failures: tuple[str, ...] = ()
    if run and source.model is not None:
        if written is not None:
            require_alike(source.model, written)
        rewriting = Rewriting(source.model, steps, read_fences(record), written)
        trial = run_trial(rewriting, record, provider)
        judgement = judge(trial, Terms(record.budget_nbytes, tolerance, rewriting.fences))
        print_trial(trial, judgement, record)
        document |= make_document(trial, judgement)
        failures = judgement.failures
        try:
            document |= _check_drift(source.model, provider)
        except MismatchError as error:
            failures += (error.message,)
    if as_json:
        click.echo(json.dumps(document))
    _raise_failures(failures, record)


def _raise_failures(failures: Sequence[str], record: ScheduleRecord) -> None:
    if not failures:
        return
    is_counted = record.origin.source == "flops" and "peak" in failures[0]
    raise MismatchError(
        f"the runs do not match the schedule in {len(failures)} ways; the first: {failures[0]}",
        hint="counted costs do not know what workspace ops need: solve with measured costs"
        if is_counted
        else None,
    )


def _read_source(model: Path, record: ScheduleRecord, asked: Asked) -> Source:
    """Return the model, or the problem, that ``record`` is for."""
    try:
        return read_source_of(record, model, asked)
    except UsageError as error:
        raise InputError(f"the schedule does not fit the model: {error.message}") from error


def _check_drift(model: Model, provider: Literal["auto", "cuda", "cpu"]) -> dict[str, object]:
    """Compare an optimized model with the file that it was made from."""
    drift = check_drift(model, probe_device(provider).provider) if model.is_optimized else None
    if drift is None:
        return {}
    echo_note(
        f"optimized against given graph: outputs within {drift.error:.1g} of their largest element"
    )
    return {"drift": drift.error}
