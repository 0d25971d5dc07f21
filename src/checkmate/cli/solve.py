"""``checkmate solve``."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Literal

import click

from checkmate.cli.fencing import choose_fences, fences_option, read_fences
from checkmate.cli.options import (
    Duration,
    Percent,
    Size,
    costs_option,
    dim_option,
    json_option,
    loss_option,
    model_argument,
    parse_dims,
    provider_option,
)
from checkmate.cli.record import make_record
from checkmate.cli.report import echo_note, print_plan
from checkmate.cli.source import Asked, Source, read_source
from checkmate.engine.solve import run_baseline, solve
from checkmate.errors import UsageError
from checkmate.files import check_writable, write_files
from checkmate.formats.schedule_json import ScheduleRecord, make_document, render_schedule
from checkmate.onnxio.windows import Fences
from checkmate.onnxio.write import render_model
from checkmate.plan import Plan
from checkmate.search.finding import Limits
from checkmate.search.strategies import STRATEGIES
from checkmate.units import Share, format_nbytes_exactly


@click.command("solve")
@model_argument
@click.option("--budget", type=Size(), required=True, help="Most memory: 8GiB, 9.3GB or 75%.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Schedule file to write.")
@click.option("--onnx", "onnx_path", type=click.Path(path_type=Path), help="Model to write.")
@costs_option
@provider_option
@dim_option
@loss_option
@click.option(
    "--strategy",
    type=click.Choice(list(STRATEGIES)),
    default="auto",
    show_default=True,
    help="How to search.",
)
@click.option(
    "--time-limit", type=Duration(), default="10m", show_default=True, help="Most time to search."
)
@click.option("--node-limit", type=click.IntRange(1), help="Most branch-and-bound nodes; no clock.")
@click.option("--gap", type=Percent(), default="1%", show_default=True, help="Good enough.")
@fences_option
@json_option
def command(
    model: Path,
    budget: int | Share,
    output: Path | None,
    onnx_path: Path | None,
    costs: str,
    provider: Literal["auto", "cuda", "cpu"],
    dims: tuple[str, ...],
    loss: str | None,
    strategy: str,
    time_limit: float,
    node_limit: int | None,
    gap: float,
    fences: Fences,
    as_json: bool,
) -> None:
    """Find the cheapest schedule of MODEL that fits a memory budget.

    MODEL is an ONNX training graph, or a checkmate.problem file. Without -o and --onnx, both
    files are written to the current folder, named after MODEL.
    """
    started = time.monotonic()
    files = _choose_files(model, output, onnx_path)
    source = read_source(model, Asked(parse_dims(dims), loss, costs, provider))
    baseline = run_baseline(source.problem)
    budget_nbytes = budget if isinstance(budget, int) else budget.of(baseline.peak.nbytes)
    echo_note(f"budget {format_nbytes_exactly(budget_nbytes)}")
    limits = Limits(gap, None if node_limit else time_limit, node_limit)
    plan = solve(source.problem, budget_nbytes, strategy, limits)
    record = make_record(source, plan, baseline, choose_fences(source, fences))
    written = _write(files, source, plan, record)
    print_plan(source.problem, plan, baseline, written)
    if as_json:
        document = make_document(record) | {
            "files": {kind: str(path) for kind, path in written.items()},
            "seconds": round(time.monotonic() - started, 3),
        }
        click.echo(json.dumps(document))


def _choose_files(model: Path, output: Path | None, onnx_path: Path | None) -> dict[str, Path]:
    """Return the files to write; refuse those that cannot be before any work is done."""
    if output is None and onnx_path is None:
        output = Path(f"{model.stem}.schedule.json")
        onnx_path = Path(f"{model.stem}.scheduled.onnx")
    files = {"schedule": output, "model": onnx_path}
    chosen = {kind: path for kind, path in files.items() if path is not None}
    for path in chosen.values():
        if path.resolve() == model.resolve():
            raise UsageError(f"{str(path)!r} is the model itself; write to another file")
        check_writable(path)
    if output is not None and onnx_path is not None and output.resolve() == onnx_path.resolve():
        raise UsageError(f"-o and --onnx name one file, {str(output)!r}")
    return chosen


def _write(
    files: dict[str, Path], source: Source, plan: Plan, record: ScheduleRecord
) -> dict[str, Path]:
    contents: dict[Path, bytes] = {}
    written: dict[str, Path] = {}
    if "schedule" in files:
        written["schedule"] = files["schedule"]
        contents[files["schedule"]] = render_schedule(record).encode()
    if "model" in files and source.model is not None:
        written["model"] = files["model"]
        contents[files["model"]] = render_model(
            source.model, plan.schedule, files["model"], read_fences(record)
        )
    write_files(contents)
    return written
