"""``checkmate compare``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import click

from checkmate.cli.options import (
    Duration,
    Percent,
    Size,
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
from checkmate.cli.report import SPACE_NAMES, echo_note, print_order, print_table
from checkmate.cli.source import Asked, Source, read_source
from checkmate.engine.compare import Row, compare, find_failure
from checkmate.engine.ordering import Order, choose_order
from checkmate.engine.solve import run_baseline
from checkmate.formats.schedule_json import Optimization
from checkmate.schedule import count_recomputes
from checkmate.search.finding import Limits
from checkmate.search.strategies import STRATEGIES
from checkmate.simulate import Simulation
from checkmate.units import Share, format_nbytes, format_nbytes_exactly, format_ns, format_ratio


@click.command("compare")
@model_argument
@click.option("--budget", type=Size(), required=True, help="Most memory: 8GiB, 9.3GB or 75%.")
@costs_option
@provider_option
@dim_option
@loss_option
@optimize_option
@click.option(
    "--strategy",
    "strategies",
    type=click.Choice(list(STRATEGIES)),
    multiple=True,
    help="One to compare; may be repeated.  [default: all]",
)
@click.option(
    "--time-limit",
    type=Duration(),
    default="1m",
    show_default=True,
    help="Most time to search, for each strategy.",
)
@click.option("--gap", type=Percent(), default="1%", show_default=True, help="Good enough.")
@order_option
@json_option
def command(
    model: Path,
    budget: int | Share,
    costs: str,
    provider: Literal["auto", "cuda", "cpu"],
    dims: tuple[str, ...],
    loss: str | None,
    optimize: Optimization | None,
    strategies: tuple[str, ...],
    time_limit: float,
    gap: float,
    order: Order,
    as_json: bool,
) -> None:
    """Compare the strategies on MODEL in a memory budget.

    MODEL is an ONNX training graph, or a checkmate.problem file. Every plan is run by the same
    simulator. Nothing is written.
    """
    source = read_source(model, Asked(parse_dims(dims), loss, costs, provider, optimize=optimize))
    baseline = run_baseline(source.problem)
    budget_nbytes = budget if isinstance(budget, int) else budget.of(baseline.peak.nbytes)
    echo_note(f"budget {format_nbytes_exactly(budget_nbytes)}")
    chosen = tuple(dict.fromkeys(strategies)) or tuple(STRATEGIES)
    limits = Limits(gap, time_limit)
    reordering = choose_order(source.problem, order)
    print_order(reordering, baseline)
    rows = tuple(compare(reordering.reordered, budget_nbytes, chosen, limits))
    _print_rows(rows, baseline)
    if as_json:
        click.echo(json.dumps(_make_document(source, budget_nbytes, baseline, rows)))
    failure = find_failure(rows)
    if failure is not None:
        raise failure


def _print_rows(rows: Sequence[Row], baseline: Simulation) -> None:
    headers = ("strategy", "overhead", "peak", "s", "bound", "gap", "verdict")
    print_table(headers, [_format_row(row, baseline) for row in rows])
    for row in rows:
        if row.error is not None:
            echo_note(f"{row.strategy}: {row.error.message}")
    for space in dict.fromkeys(row.space for row in rows if row.space is not None):
        bound_ns = max(row.bound_ns or 0 for row in rows if row.space == space)
        share = format_ratio(bound_ns, baseline.time_ns)
        echo_note(f"best bound {format_ns(bound_ns)}, {share}, among {SPACE_NAMES[space]}")


def _format_row(row: Row, baseline: Simulation) -> tuple[str, ...]:
    plan = row.plan
    overhead = "" if plan is None else format_ratio(plan.time_ns, baseline.time_ns)
    bound = "" if row.bound_ns is None else format_ratio(row.bound_ns, baseline.time_ns)
    return (
        row.strategy,
        overhead,
        "" if plan is None else format_nbytes(plan.peak.nbytes),
        f"{row.seconds:.1f}",
        bound,
        "" if plan is None else f"{100 * plan.gap:.2f} %",
        "optimal" if plan is not None and plan.claim.termination == "optimal" else row.verdict,
    )


def _make_document(
    source: Source, budget_nbytes: int, baseline: Simulation, rows: Sequence[Row]
) -> dict[str, object]:
    graph = source.problem.graph
    return {
        "graph": {"name": graph.name, "sha256": source.sha256, "ops": len(graph.ops)},
        "budget_nbytes": budget_nbytes,
        "baseline_peak_nbytes": baseline.peak.nbytes,
        "baseline_time_ns": baseline.time_ns,
        "strategies": [_describe(row) for row in rows],
    }


def _describe(row: Row) -> dict[str, object]:
    """Return a row for scripts; what there is not, is null."""
    plan = row.plan
    return {
        "strategy": row.strategy,
        "verdict": row.verdict,
        "time_ns": None if plan is None else plan.time_ns,
        "peak_nbytes": None if plan is None else plan.peak.nbytes,
        "recomputes": None if plan is None else count_recomputes(plan.schedule.order),
        "bound_ns": row.bound_ns,
        "space": row.space,
        "termination": None if plan is None else plan.claim.termination,
        "seconds": round(row.seconds, 3),
        "reason": None if row.error is None else row.error.message,
    }
