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
    parse_dims,
    provider_option,
    shapes_option,
)
from checkmate.cli.outputs import check_outputs
from checkmate.cli.report import echo_note, print_table
from checkmate.files import write_files
from checkmate.formats.costs_json import make_record, render_costs
from checkmate.onnxio.digest import digest_model
from checkmate.onnxio.model import Model
from checkmate.onnxio.read import read_model
from checkmate.profiler.learn_types import learn_types
from checkmate.profiler.profile import Profile, ProfileOptions, measure_whole_graph_ns
from checkmate.units import format_ns

_N_ROWS = 10


@click.command("profile")
@model_argument
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Costs file to write.")
@click.option("--whole", is_flag=True, help="Also run the whole graph and compare.")
@provider_option
@dim_option
@shapes_option
@json_option
def command(
    model: Path,
    output: Path | None,
    whole: bool,
    provider: Literal["auto", "cuda", "cpu"],
    dims: tuple[str, ...],
    shapes_from_run: bool,
    as_json: bool,
) -> None:
    """Measure what each op of MODEL costs.

    The costs file is for `checkmate solve --costs FILE`, on any machine; without -o it is written
    to the current folder, named after MODEL.
    """
    path = output or Path(f"{model.stem}.costs.json")
    check_outputs({"the costs file": path}, [model])
    bound = parse_dims(dims)
    measured = learn_types(model, bound) if shapes_from_run else {}
    read = read_model(model, bound, measured=measured)
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
    if whole:
        whole_ns = measure_whole_graph_ns(read, device, ProfileOptions())
        document["whole_ns"] = whole_ns
        echo_note(
            f"whole graph: {format_ns(whole_ns)};"
            f" sum of op costs is {profile.costs.total_ns / whole_ns:.3f} of it"
        )
    echo_note(f"wrote {path}")
    if as_json:
        click.echo(json.dumps(document))


def _print_costliest(model: Model, profile: Profile) -> None:
    costs = profile.costs
    pairs = zip(model.graph.ops, model.nodes, costs.time_ns, strict=True)
    ranked = sorted(pairs, key=lambda pair: -pair[2])[:_N_ROWS]
    rows = [(op.name, node.op_type, format_ns(ns)) for op, node, ns in ranked]
    print_table((f"sum of op costs {format_ns(costs.total_ns)}", "operator", "time"), rows)
