"""``checkmate export``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import click

from checkmate.cli.options import (
    costs_option,
    dim_option,
    json_option,
    loss_option,
    model_argument,
    optimize_option,
    order_option,
    parse_dims,
    provider_option,
)
from checkmate.cli.outputs import check_outputs
from checkmate.cli.report import echo_note, print_order
from checkmate.cli.source import Asked, list_input_files, read_source
from checkmate.engine.ordering import Order, choose_order
from checkmate.engine.solve import run_baseline
from checkmate.files import write_files
from checkmate.formats.digest import digest_graph
from checkmate.formats.problem_json import render_problem
from checkmate.formats.schedule_json import Optimization


@click.command("export")
@model_argument
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="Problem file to write."
)
@costs_option
@provider_option
@dim_option
@loss_option
@optimize_option
@order_option
@json_option
def command(
    model: Path,
    output: Path,
    costs: str,
    provider: Literal["auto", "cuda", "cpu"],
    dims: tuple[str, ...],
    loss: str | None,
    optimize: Optimization | None,
    order: Order,
    as_json: bool,
) -> None:
    """Write what a search sees of MODEL as a checkmate.problem file.

    It holds the graph with sizes and costs, and no weights or operators: for solver research, and
    for bug reports without the model. solve, compare and show take it in place of a model.
    """
    check_outputs({"problem": output}, list_input_files(model, costs))
    source = read_source(model, Asked(parse_dims(dims), loss, costs, provider, optimize=optimize))
    reordering = choose_order(source.problem, order)
    print_order(reordering, run_baseline(source.problem))
    problem = reordering.reordered
    write_files({output: render_problem(problem).encode()})
    n_ops, n_tensors = len(problem.graph.ops), len(problem.graph.tensors)
    echo_note(f"{problem.graph.name}: {n_ops} ops, {n_tensors} tensors")
    echo_note(f"wrote {output}")
    if as_json:
        document = {
            "graph": {
                "name": problem.graph.name,
                "sha256": digest_graph(problem.graph),
                "ops": n_ops,
                "tensors": n_tensors,
            },
            "files": {"problem": str(output)},
        }
        click.echo(json.dumps(document))
