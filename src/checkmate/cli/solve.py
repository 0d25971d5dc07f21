"""``checkmate solve``."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Literal

import click

from checkmate.cli.arena_report import make_arena_document
from checkmate.cli.budget import Amount, Budget, Target, aim, count_device_nbytes
from checkmate.cli.fencing import Choice, fences_option, solve_fenced
from checkmate.cli.live import watch_search
from checkmate.cli.noting import note_doubts
from checkmate.cli.options import (
    Duration,
    Percent,
    costs_option,
    dim_option,
    json_option,
    loss_option,
    model_argument,
    optimize_option,
    order_option,
    parse_dims,
    provider_option,
    shapes_option,
)
from checkmate.cli.record import Held, make_record
from checkmate.cli.report import print_order, print_plan
from checkmate.cli.source import Asked, read_source
from checkmate.cli.writing import STANDARD_OUTPUT, Wanted, choose_files
from checkmate.engine.ordering import Order, choose_order
from checkmate.engine.solve import run_baseline
from checkmate.errors import UsageError
from checkmate.formats.schedule_json import Optimization, make_document, render_schedule
from checkmate.search.finding import Limits
from checkmate.search.strategies import STRATEGIES


@click.command("solve")
@model_argument
@click.option(
    "--budget", type=Budget(), required=True, help="Most memory: 8GiB, 9.3GB, 75%, min or device."
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Schedule file to write; - is standard output.",
)
@click.option("--onnx", "onnx_path", type=click.Path(path_type=Path), help="Model to write.")
@click.option(
    "--copy-weights", is_flag=True, help="Copy files of weights to the folder of the new model."
)
@costs_option
@provider_option
@dim_option
@loss_option
@optimize_option
@click.option(
    "--optimized-model",
    type=click.Path(path_type=Path),
    help="Model to write: optimized, without recompute.",
)
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
@order_option
@fences_option
@click.option(
    "--arena/--no-arena",
    default=None,
    help="Fit what onnxruntime's arena adds too.  [default: unless costs are of CUDA]",
)
@json_option
def command(
    model: Path,
    budget: Amount,
    output: Path | None,
    onnx_path: Path | None,
    copy_weights: bool,
    costs: str,
    provider: Literal["auto", "cuda", "cpu"],
    dims: tuple[str, ...],
    loss: str | None,
    optimize: Optimization | None,
    optimized_model: Path | None,
    shapes_from_run: bool,
    strategy: str,
    time_limit: float,
    node_limit: int | None,
    gap: float,
    order: Order,
    fences: Choice,
    arena: bool | None,
    as_json: bool,
) -> None:
    """Find the cheapest schedule of MODEL that fits a memory budget.

    MODEL is an ONNX training graph, or a checkmate.problem file. Without -o and --onnx, both
    files are written to the current folder, named after MODEL.
    """
    started = time.monotonic()
    if as_json and output == STANDARD_OUTPUT:
        raise UsageError("--json and -o - both write to standard output", hint="leave out one")
    files = choose_files(Wanted(model, output, onnx_path, copy_weights, optimized_model), costs)
    asked = Asked(parse_dims(dims), loss, costs, provider, arena, optimize, shapes_from_run)
    source = read_source(model, asked)
    note_doubts(source)
    baseline = run_baseline(source.problem)
    if budget == "device":
        budget = count_device_nbytes(source, provider)
    limits = Limits(gap, None if node_limit else time_limit, node_limit)
    reordering = choose_order(source.problem, order)
    chosen: Order = "file" if reordering.is_identity else "memory"
    print_order(reordering, baseline)
    with watch_search() as listener:
        limits = replace(limits, listener=listener)
        search = aim(Target(source, reordering, fences), budget, strategy, limits)
        plan, held = solve_fenced(source, reordering, search, fences)
    record = make_record(source, plan, baseline, Held(held, chosen))
    written = files.write(source.model, plan.schedule, record)
    print_plan(source.problem, plan, baseline, written)
    if output == STANDARD_OUTPUT:
        click.echo(render_schedule(record), nl=False)
    if as_json:
        document = (
            make_document(record)
            | make_arena_document(record)
            | {
                "files": {kind: str(path) for kind, path in written.items()},
                "seconds": round(time.monotonic() - started, 3),
            }
        )
        click.echo(json.dumps(document))
