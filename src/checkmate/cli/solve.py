"""``checkmate solve``."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from checkmate.cli.fencing import choose_fences, fences_option, read_fences
from checkmate.cli.noting import note_doubts
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
    shapes_option,
)
from checkmate.cli.outputs import check_outputs
from checkmate.cli.record import make_record
from checkmate.cli.report import echo_note, print_plan
from checkmate.cli.source import Asked, Source, is_document, read_source
from checkmate.engine.solve import run_baseline, solve
from checkmate.errors import UsageError
from checkmate.files import write_files
from checkmate.formats.schedule_json import ScheduleRecord, make_document, render_schedule
from checkmate.onnxio.load import list_external_files, load_proto
from checkmate.onnxio.windows import Fences
from checkmate.onnxio.write import render_model
from checkmate.plan import Plan
from checkmate.search.finding import Limits
from checkmate.search.strategies import STRATEGIES
from checkmate.units import Share, format_nbytes_exactly


@dataclass(frozen=True, slots=True)
class _Files:
    """What the command line names."""

    model: Path
    output: Path | None
    onnx_path: Path | None


@click.command("solve")
@model_argument
@click.option("--budget", type=Size(), required=True, help="Most memory: 8GiB, 9.3GB or 75%.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Schedule file to write.")
@click.option("--onnx", "onnx_path", type=click.Path(path_type=Path), help="Model to write.")
@costs_option
@provider_option
@dim_option
@loss_option
@shapes_option
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
@click.option(
    "--node-limit", type=click.IntRange(1, 2**31 - 1), help="Most branch-and-bound nodes; no clock."
)
@click.option("--gap", type=Percent(), default="1%", show_default=True, help="Good enough.")
@fences_option
@click.option("--arena", is_flag=True, help="Fit what onnxruntime's arena adds too.")
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
    shapes_from_run: bool,
    strategy: str,
    time_limit: float,
    node_limit: int | None,
    gap: float,
    fences: Fences,
    arena: bool,
    as_json: bool,
) -> None:
    """Find the cheapest schedule of MODEL that fits a memory budget.

    MODEL is an ONNX training graph, or a checkmate.problem file. Without -o and --onnx, both
    files are written to the current folder, named after MODEL.
    """
    started = time.monotonic()
    files = _choose_files(_Files(model, output, onnx_path), costs)
    asked = Asked(parse_dims(dims), loss, costs, provider, arena, shapes_from_run)
    source = read_source(model, asked)
    note_doubts(source)
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


def _choose_files(asked: _Files, costs: str) -> dict[str, Path]:
    """Return the files to write; refuse those that cannot be before any work is done."""
    model, output, onnx_path = asked.model, asked.output, asked.onnx_path
    is_problem = is_document(model)
    data = () if is_problem else list_external_files(load_proto(model), model.resolve().parent)
    if output is None and onnx_path is None:
        output = Path(f"{model.stem}.schedule.json")
        # External data is found from the folder of the model alone.
        folder = model.parent if data else Path()
        onnx_path = None if is_problem else folder / f"{model.stem}.scheduled.onnx"
    if is_problem and onnx_path is not None:
        raise UsageError("a problem file has no model to rewrite: no --onnx")
    if data and onnx_path is not None and onnx_path.resolve().parent != model.resolve().parent:
        raise UsageError(
            f"model {model.name!r} keeps weights in other files, which {str(onnx_path)!r}"
            " would not find",
            hint=f"write the rewritten model to {str(model.resolve().parent)!r}",
        )
    named = {"schedule": output, "model": onnx_path}
    chosen = {kind: path for kind, path in named.items() if path is not None}
    inputs = [model, *data, *([] if costs in ("auto", "flops") else [Path(costs)])]
    check_outputs(chosen, inputs)
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
