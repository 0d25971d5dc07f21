"""What people read, on standard error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from checkmate.arena import count_outside_nbytes
from checkmate.cli.terminal import escape
from checkmate.engine.solve import count_baseline_fragmentation_nbytes, run_baseline
from checkmate.plan import Claim, Plan, Space
from checkmate.problem import Problem
from checkmate.reordering import Reordering
from checkmate.schedule import count_recomputes
from checkmate.simulate import Peak, Simulation
from checkmate.units import format_nbytes, format_ns, format_ratio

SPACE_NAMES: Mapping[Space, str] = {
    "all-schedules": "all schedules (the time of every op once)",
    "frontier-advancing": "the frontier-advancing schedules of this op order",
    "chain-of-stages": "the chains of stages of this op order",
}


def echo_note(text: str) -> None:
    """Print one line to standard error; names in it may be anything."""
    click.echo(escape(text), err=True)


def count_things(count: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def print_order(reordering: Reordering, baseline: Simulation) -> None:
    """Print what another op order than that of the file needs without recompute."""
    if reordering.order != tuple(range(len(reordering.order))):
        peak = run_baseline(reordering.reordered).peak
        share = format_ratio(peak.nbytes, baseline.peak.nbytes)
        echo_note(
            f"order: memory; peak without recompute {format_nbytes(peak.nbytes)}, {share}"
            f" against {format_nbytes(baseline.peak.nbytes)} in file order"
        )


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """Print a table; the first column is left-aligned, the others are numbers."""
    table = Table(title=escape(title) or None, title_justify="left", box=None, pad_edge=False)
    for position, header in enumerate(headers):
        table.add_column(escape(header), justify="right" if position else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    Console(stderr=True, highlight=False, markup=False).print(table)


def print_plan(
    problem: Problem, plan: Plan, baseline: Simulation, written: Mapping[str, Path]
) -> None:
    """Print what a plan costs, against the graph without recompute."""
    claim = plan.claim
    share = f"{100 * plan.peak.nbytes / max(baseline.peak.nbytes, 1):.1f} %"
    rows = [
        ("peak", format_nbytes(baseline.peak.nbytes), format_nbytes(plan.peak.nbytes), share),
        *_describe_peak(baseline.peak, plan.peak),
        *_describe_arena(problem, plan, baseline),
        (
            "time",
            format_ns(baseline.time_ns),
            format_ns(plan.time_ns),
            format_ratio(plan.time_ns, baseline.time_ns),
        ),
    ]
    print_table(("", "no recompute", "plan", ""), rows)
    origin = problem.costs.origin
    order = plan.schedule.order
    echo_note(f"budget: {format_nbytes(plan.budget_nbytes)}, held in the simulation")
    if plan.peak.op is not None:
        echo_note(f"peak at: {problem.graph.ops[plan.peak.op].name}")
    echo_note(f"recomputes: {count_recomputes(order)} beside {len(problem.graph.ops)} ops")
    echo_note(
        f"bound: {describe_bound(claim)};"
        f" gap {100 * plan.gap:.2f} % ({claim.termination}, {claim.strategy})"
    )
    echo_note(f"costs: {' '.join(filter(None, (origin.source, origin.provider, origin.device)))}")
    for path in written.values():
        echo_note(f"wrote {path}")


def describe_bound(claim: Claim) -> str:
    """Return what is proved, and among which schedules; the plan may be none of them."""
    space = SPACE_NAMES[claim.space]
    if claim.termination == "optimal":
        return f"nothing is faster among {space}"
    return f"{format_ns(claim.bound_ns)} among {space}"


def _describe_arena(
    problem: Problem, plan: Plan, baseline: Simulation
) -> list[tuple[str, str, str, str]]:
    """Return what the arena adds, and what it takes then."""
    if problem.arena is None:
        return []
    before = count_baseline_fragmentation_nbytes(problem)
    after = plan.fragmentation_nbytes
    totals = baseline.peak.nbytes + before, plan.peak.nbytes + after
    share = f"{100 * totals[1] / max(totals[0], 1):.1f} %"
    held = count_outside_nbytes(problem.graph, problem.arena)
    arenas = format_nbytes(totals[0] - held), format_nbytes(totals[1] - held)
    return [
        ("  fragmentation", format_nbytes(before), format_nbytes(after), ""),
        ("peak with that", format_nbytes(totals[0]), format_nbytes(totals[1]), share),
        ("  held by the caller", format_nbytes(held), format_nbytes(held), ""),
        ("  arena", *arenas, ""),
    ]


def _describe_peak(before: Peak, after: Peak) -> list[tuple[str, str, str, str]]:
    parts = ("resident", "live", "workspace")
    return [
        (
            f"  {part}",
            format_nbytes(getattr(before, f"{part}_nbytes")),
            format_nbytes(getattr(after, f"{part}_nbytes")),
            "",
        )
        for part in parts
        if getattr(before, f"{part}_nbytes") or getattr(after, f"{part}_nbytes")
    ]
