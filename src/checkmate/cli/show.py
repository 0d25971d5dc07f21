"""``checkmate show``."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

import click

from checkmate.cli.arena_report import make_arena_document
from checkmate.cli.certifying import certify_record
from checkmate.cli.options import (
    dim_option,
    json_option,
    loss_option,
    parse_dims,
    provider_option,
    shapes_option,
)
from checkmate.cli.overview import Shown, show_source
from checkmate.cli.report import describe_bound, echo_note, print_table
from checkmate.cli.source import Asked, is_document, read_source_of
from checkmate.engine.inspect import find_retention
from checkmate.errors import UsageError
from checkmate.formats.fields import peek_format
from checkmate.formats.schedule_json import FORMAT as SCHEDULE_FORMAT
from checkmate.formats.schedule_json import (
    Optimization,
    ScheduleRecord,
    make_document,
    read_schedule,
    resolve_instructions,
)
from checkmate.graph import Graph, TensorId
from checkmate.onnxio.dims import find_dims
from checkmate.onnxio.load import load_proto
from checkmate.schedule import Schedule
from checkmate.units import format_nbytes, format_ns, format_ratio

_N_ROWS = 10


@click.command("show")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--model", type=click.Path(path_type=Path), help="Model that a schedule is for.")
@click.option(
    "--costs",
    metavar="auto|flops|FILE",
    help="Costs, for workspace and to verify times.  [default: flops]",
)
@provider_option
@dim_option
@click.option("--list-dims", is_flag=True, help="Only the symbolic dimensions of a model.")
@loss_option
@click.option(
    "--optimize",
    type=click.Choice(list(get_args(Optimization))),
    help="Show the graph that onnxruntime makes of it.  [default: none; with --costs, as solve]",
)
@shapes_option
@json_option
def command(
    file: Path,
    model: Path | None,
    costs: str | None,
    provider: Literal["auto", "cuda", "cpu"],
    dims: tuple[str, ...],
    list_dims: bool,
    loss: str | None,
    optimize: Optimization | None,
    shapes_from_run: bool,
    as_json: bool,
) -> None:
    """Print what a model, a problem or a schedule holds.

    FILE is a model or a problem: its ops, its memory without recompute and its largest tensors;
    of a model whose symbolic dimensions are not bound, what has no sizes. Or FILE is a schedule:
    what it computes again and where its peak is; with --model it is simulated and certified, and
    what it keeps for the backward pass is shown.
    """
    # Costs that were measured are those of the optimized graph, unless it was not to be optimized.
    stage = optimize if optimize is not None or costs is not None else "none"
    asked = Asked(
        parse_dims(dims),
        loss,
        costs or "flops",
        provider,
        optimize=stage,
        shapes_from_run=shapes_from_run,
    )
    shown: Shown
    if list_dims:
        shown = Shown(_list_dims(file))
    elif is_document(file) and peek_format(file) == SCHEDULE_FORMAT:
        if dims or optimize is not None:
            raise UsageError("a schedule has its own dimensions and graph: no --dim or --optimize")
        shown = Shown(_show_schedule(read_schedule(file), model, asked, is_sure=costs is not None))
    elif model is not None:
        raise UsageError("--model goes with a schedule file")
    else:
        # A problem has its own costs.
        is_problem = is_document(file) and costs is None
        shown = show_source(file, replace(asked, costs="auto") if is_problem else asked)
    if as_json:
        click.echo(json.dumps(shown.document))
    if shown.error is not None:
        raise shown.error


def _list_dims(file: Path) -> dict[str, object]:
    if is_document(file):
        raise UsageError("only a model has symbolic dimensions: no --list-dims")
    dims = find_dims(load_proto(file).graph)
    for name, inputs in dims.items():
        more = f" and {len(inputs) - 1} more inputs" if len(inputs) > 1 else ""
        echo_note(f"{name}: of input {inputs[0]!r}{more}; bind it with --dim {name}=VALUE")
    if not dims:
        echo_note("no symbolic dimensions: every input has a fixed size")
    return {"dims": dims}


def _show_schedule(
    record: ScheduleRecord, model: Path | None, asked: Asked, *, is_sure: bool
) -> dict[str, object]:
    _print_schedule(record)
    document = make_document(record) | make_arena_document(record)
    computes = Counter(name for kind, name in record.instructions if kind == "compute")
    again = {name: count - 1 for name, count in computes.items() if count > 1}
    rows = [(name, str(count)) for name, count in list(again.items())[:_N_ROWS]]
    print_table((f"{sum(again.values())} recomputes of {len(again)} ops", "times"), rows)
    document |= {"recomputes": again}
    if model is None:
        return document
    has_arena = "arena_limit_nbytes" in record.runtime
    asked = replace(asked, dims=record.dims, arena=has_arena)
    source = read_source_of(record, model, asked)
    steps = resolve_instructions(record, source.problem.graph)
    certified = certify_record(source.problem, steps, record, is_sure=is_sure)
    return document | {"certified": certified} | _show_retention(source.problem.graph, steps)


def _print_schedule(record: ScheduleRecord) -> None:
    echo_note(f"{record.graph.name}: {record.graph.n_ops} ops, digest {record.graph.sha256[:12]}")
    echo_note(
        f"peak {format_nbytes(record.peak_nbytes)} of budget {format_nbytes(record.budget_nbytes)}"
        f" at {record.peak.op or 'no op'}; {format_nbytes(record.baseline_peak_nbytes)} without"
        " recompute"
    )
    _echo_arena(record)
    echo_note(
        f"time {format_ns(record.time_ns)},"
        f" {format_ratio(record.time_ns, record.baseline_time_ns)};"
        f" bound: {describe_bound(record.claim)}"
    )


def _echo_arena(record: ScheduleRecord) -> None:
    arena = make_arena_document(record).get("arena")
    if not isinstance(arena, dict):
        echo_note("made without onnxruntime's arena: bytes alone count")
        return
    echo_note(
        f"live peak {format_nbytes(record.peak.live_nbytes)}, workspace"
        f" {format_nbytes(record.peak.workspace_nbytes)}, fragmentation"
        f" {format_nbytes(arena['fragmentation_nbytes'])}; arena peak"
        f" {format_nbytes(arena['peak_nbytes'])} of {format_nbytes(arena['limit_nbytes'])}, beside"
        f" {format_nbytes(arena['held_nbytes'])} held by the caller"
    )


def _show_retention(graph: Graph, steps: Schedule) -> dict[str, object]:
    retention = find_retention(graph, steps)
    for title, tensors in (("kept", retention.kept), ("dropped", retention.dropped)):
        total = sum(graph.tensors[tensor].nbytes for tensor in tensors)
        print_table(
            (f"{title} for the backward pass: {len(tensors)} tensors", format_nbytes(total)),
            [_describe(graph, tensor) for tensor in tensors[:_N_ROWS]],
        )
    return {
        "kept": [graph.tensors[tensor].name for tensor in retention.kept],
        "dropped": [graph.tensors[tensor].name for tensor in retention.dropped],
    }


def _describe(graph: Graph, tensor: TensorId) -> tuple[str, str]:
    return graph.tensors[tensor].name, format_nbytes(graph.tensors[tensor].nbytes)
