"""``checkmate profile``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import click

from checkmate.cli.measuring import measure
from checkmate.cli.options import (
    dim_option,
    json_option,
    model_argument,
    optimize_option,
    parse_dims,
    provider_option,
    shapes_option,
)
from checkmate.cli.outputs import check_outputs
from checkmate.cli.report import echo_note, print_table
from checkmate.cli.source import Asked, list_input_files, read_planned
from checkmate.engine.solve import run_baseline
from checkmate.files import write_files
from checkmate.formats.costs_json import make_record, render_costs
from checkmate.formats.schedule_json import Optimization
from checkmate.onnxio.digest import digest_model
from checkmate.onnxio.model import Model
from checkmate.problem import Problem
from checkmate.profiler.profile import Profile, ProfileOptions, measure_whole_graph_ns
from checkmate.runtime.device import Device, count_free_nbytes
from checkmate.units import format_nbytes, format_ns

_N_ROWS = 10
_MAX_WHOLE_NS = 2_000_000_000
_MEMORY_PERCENT = 80


@click.command("profile")
@model_argument
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Costs file to write.")
@click.option(
    "--whole/--no-whole",
    default=None,
    help="Run the whole graph too and compare.  [default: where it is quick and fits]",
)
@provider_option
@dim_option
@optimize_option
@shapes_option
@json_option
def command(
    model: Path,
    output: Path | None,
    whole: bool | None,
    provider: Literal["auto", "cuda", "cpu"],
    dims: tuple[str, ...],
    optimize: Optimization | None,
    shapes_from_run: bool,
    as_json: bool,
) -> None:
    """Measure what each op of MODEL costs.

    The costs file is for `checkmate solve --costs FILE`, on any machine; without -o it is written
    to the current folder, named after MODEL.
    """
    path = output or Path(f"{model.stem}.costs.json")
    check_outputs({"the costs file": path}, list_input_files(model, "auto"))
    asked = Asked(
        parse_dims(dims), provider=provider, optimize=optimize, shapes_from_run=shapes_from_run
    )
    read, _ = read_planned(model, asked)
    profile, device = measure(read, provider)
    record = make_record(read.graph, digest_model(read), read.dims, profile.costs)
    write_files({path: render_costs(record).encode()})
    _print_costliest(read, profile)
    document = {
        "files": {"costs": str(path)},
        "total_ns": profile.costs.total_ns,
        "signatures": profile.n_signatures,
        "remembered": profile.n_remembered,
        "estimated": [estimated.op for estimated in profile.estimated],
    }
    obstacle = "" if whole else _find_obstacle(read, profile, device)
    if whole is False or obstacle:
        echo_note(f"whole graph: not run{obstacle and f', {obstacle}; --whole runs it'}")
    else:
        whole_ns = measure_whole_graph_ns(read, device, ProfileOptions())
        document["whole_ns"] = whole_ns
        echo_note(
            f"whole graph: {format_ns(whole_ns)};"
            f" sum of op costs is {profile.costs.total_ns / max(1, whole_ns):.3f} of it"
        )
    echo_note(f"wrote {path}")
    if as_json:
        click.echo(json.dumps(document))


def _find_obstacle(model: Model, profile: Profile, device: Device) -> str:
    """Return why the whole graph is not run unless asked for; empty: it is."""
    needed_nbytes = run_baseline(Problem(model.graph, profile.costs)).peak.nbytes
    free_nbytes = count_free_nbytes(device)
    if needed_nbytes > free_nbytes * _MEMORY_PERCENT // 100:
        return f"as it needs {format_nbytes(needed_nbytes)} of {format_nbytes(free_nbytes)}"
    if profile.costs.total_ns > _MAX_WHOLE_NS:
        return f"as it would take {format_ns(profile.costs.total_ns)}"
    return ""


def _print_costliest(model: Model, profile: Profile) -> None:
    costs = profile.costs
    pairs = zip(model.graph.ops, model.nodes, costs.time_ns, strict=True)
    ranked = sorted(pairs, key=lambda pair: -pair[2])[:_N_ROWS]
    rows = [(op.name, node.op_type, format_ns(ns)) for op, node, ns in ranked]
    print_table((f"sum of op costs {format_ns(costs.total_ns)}", "operator", "time"), rows)
