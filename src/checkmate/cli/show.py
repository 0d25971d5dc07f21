"""``checkmate show``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import click

from checkmate.cli.options import dim_option, json_option, loss_option, parse_dims
from checkmate.cli.report import SPACE_NAMES, echo_note, print_table
from checkmate.cli.source import Asked, Source, is_document, read_source
from checkmate.engine.inspect import find_retention
from checkmate.engine.solve import run_baseline
from checkmate.errors import UsageError
from checkmate.formats.fields import peek_format
from checkmate.formats.schedule_json import FORMAT as SCHEDULE_FORMAT
from checkmate.formats.schedule_json import (
    ScheduleRecord,
    make_document,
    read_schedule,
    resolve_instructions,
)
from checkmate.graph import Graph, TensorId
from checkmate.onnxio.dims import find_dims
from checkmate.onnxio.load import load_proto
from checkmate.units import format_nbytes, format_ns, format_ratio

_N_ROWS = 10


@click.command("show")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--model", type=click.Path(path_type=Path), help="Model that a schedule is for.")
@dim_option
@click.option("--list-dims", is_flag=True, help="Only the symbolic dimensions of a model.")
@loss_option
@json_option
def command(
    file: Path,
    model: Path | None,
    dims: tuple[str, ...],
    list_dims: bool,
    loss: str | None,
    as_json: bool,
) -> None:
    """Print what a model, a problem or a schedule holds.

    FILE is a model or a problem: its ops, its memory without recompute and its largest tensors.
    Or FILE is a schedule: what it computes again and where its peak is; with --model also what it
    keeps for the backward pass, with sizes.
    """
    document: Mapping[str, object]
    if list_dims:
        document = _list_dims(file)
    elif is_document(file) and peek_format(file) == SCHEDULE_FORMAT:
        if dims:
            raise UsageError("a schedule has its own dimensions: no --dim")
        record = read_schedule(file)
        graph = None if model is None else _read_graph(model, record, loss)
        document = _show_schedule(record, graph)
    elif model is not None:
        raise UsageError("--model goes with a schedule file")
    else:
        source = read_source(file, _ask(file, dims, loss))
        document = _show_graph(source)
    if as_json:
        click.echo(json.dumps(document))


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


def _ask(file: Path, dims: tuple[str, ...], loss: str | None) -> Asked:
    return Asked(parse_dims(dims), loss, "auto" if is_document(file) else "flops")


def _read_graph(model: Path, record: ScheduleRecord, loss: str | None) -> Graph:
    source = read_source(model, Asked(record.dims, loss, "flops"))
    source.check_digest(record)
    return source.problem.graph


def _show_graph(source: Source) -> dict[str, object]:
    graph = source.problem.graph
    peak = run_baseline(source.problem).peak
    n_backward = sum(op.backward for op in graph.ops)
    n_pinned = sum(not op.recomputable for op in graph.ops)
    n_views = sum(tensor.source is not None for tensor in graph.tensors)
    peak_op = "" if peak.op is None else graph.ops[peak.op].name
    document: dict[str, object] = {
        "name": graph.name,
        "sha256": source.sha256,
        "ops": len(graph.ops),
        "backward_ops": n_backward,
        "pinned_ops": n_pinned,
        "views": n_views,
        "tensors": len(graph.tensors),
        "resident_nbytes": peak.resident_nbytes,
        "baseline_peak_nbytes": peak.nbytes,
        "baseline_peak_op": peak_op,
    }
    echo_note(
        f"{graph.name}: {len(graph.ops)} ops, {n_backward} of them backward;"
        f" {n_views} views; {n_pinned} ops that may run only once"
    )
    echo_note(f"inputs and parameters: {format_nbytes(peak.resident_nbytes)}")
    echo_note(f"peak without recompute: {format_nbytes(peak.nbytes)} at {peak_op or 'no op'}")
    largest = sorted((t for t in graph.tensors if t.producer is not None), key=lambda t: -t.nbytes)
    rows = [(tensor.name, format_nbytes(tensor.nbytes)) for tensor in largest[:_N_ROWS]]
    print_table(("largest tensors", "size"), rows)
    return document


def _show_schedule(record: ScheduleRecord, graph: Graph | None) -> dict[str, object]:
    echo_note(f"{record.graph.name}: {record.graph.n_ops} ops, digest {record.graph.sha256[:12]}")
    echo_note(
        f"peak {format_nbytes(record.peak_nbytes)} of budget {format_nbytes(record.budget_nbytes)}"
        f" at {record.peak.op or 'no op'}; {format_nbytes(record.baseline_peak_nbytes)} without"
        " recompute"
    )
    echo_note(
        f"time {format_ns(record.time_ns)},"
        f" {format_ratio(record.time_ns, record.baseline_time_ns)};"
        f" bound {format_ns(record.claim.bound_ns)} among {SPACE_NAMES[record.claim.space]}"
    )
    computes = Counter(name for kind, name in record.instructions if kind == "compute")
    again = {name: count - 1 for name, count in computes.items() if count > 1}
    rows = [(name, str(count)) for name, count in list(again.items())[:_N_ROWS]]
    title = f"{sum(again.values())} recomputes of {len(again)} ops"
    print_table((title, "times"), rows)
    document = make_document(record) | {"recomputes": again}
    return document if graph is None else document | _show_retention(record, graph)


def _show_retention(record: ScheduleRecord, graph: Graph) -> dict[str, object]:
    retention = find_retention(graph, resolve_instructions(record, graph))
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
