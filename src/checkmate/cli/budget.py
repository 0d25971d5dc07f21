"""What ``--budget`` may be, and the search that it means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import click

from checkmate.arena import count_budget_nbytes
from checkmate.cli.fencing import Choice, foresee_fences, make_form
from checkmate.cli.options import Size
from checkmate.cli.report import echo_note
from checkmate.cli.source import Source
from checkmate.engine.min_budget import find_min_budget
from checkmate.engine.tighten import halve_time
from checkmate.engine.written import Search
from checkmate.errors import UsageError
from checkmate.heuristics.keep_all import order_all
from checkmate.liveness import insert_frees
from checkmate.problem import Problem
from checkmate.reordering import Reordering
from checkmate.runtime.device import RESERVE_NBYTES, count_whole_budget_nbytes, probe_device
from checkmate.search.finding import Limits
from checkmate.simulate import simulate
from checkmate.units import Share, format_nbytes, format_nbytes_exactly

Amount = int | Share | Literal["min", "device"]
"""Bytes; a share of what the graph needs without recompute; the smallest budget that is found to
work; all memory of the device, less the reserve."""


class Budget(click.ParamType[Amount]):
    """A size with a unit, a share of the peak without recompute, ``min`` or ``device``."""

    name = "size"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Amount:
        """Return what the text means."""
        if value == "min":
            return "min"
        return "device" if value == "device" else Size().convert(value, param, ctx)


@dataclass(frozen=True, slots=True)
class Target:
    """What a budget is for."""

    source: Source
    reordering: Reordering
    fences: Choice


def aim(
    target: Target, budget: int | Share | Literal["min"], strategy: str, limits: Limits
) -> Search:
    """Return a search within ``budget``, or in the smallest that is found in half of the time."""
    if budget == "min":
        return _aim_low(target, strategy, halve_time(limits))
    if not isinstance(budget, int):
        budget = _resolve_share(target, budget)
    echo_note(f"budget {format_nbytes_exactly(budget)}")
    return Search(budget, strategy, limits)


def _aim_low(target: Target, strategy: str, limits: Limits) -> Search:
    """Return a search in the smallest budget that is found, with what fences add to it."""
    fences = foresee_fences(target.source, target.fences)
    form = make_form(target.source, target.reordering, fences)
    problem = form.reordering.reordered
    smallest = find_min_budget(problem, limits, form.count_nbytes)
    echo_note(f"budget min: {smallest.describe(problem)}")
    nbytes = form.count_nbytes(smallest.order, smallest.nbytes)
    if nbytes > smallest.nbytes:
        added = "what its file adds" if fences == "none" else "its fences"
        echo_note(f"with {added}: {format_nbytes_exactly(nbytes)}")
    return Search(nbytes, strategy, limits, smallest.order)


def _resolve_share(target: Target, share: Share) -> int:
    """Return the bytes of ``share``.

    All of what the graph needs, or more, is enough for it as it is written, with the fences that
    were asked for; those of ``auto`` may go.
    """
    baseline_nbytes = _count_baseline_nbytes(target.reordering.original)
    nbytes = share.of(baseline_nbytes)
    if nbytes < baseline_nbytes:
        return nbytes
    asked: Choice = "none" if target.fences == "auto" else target.fences
    fences = foresee_fences(target.source, asked)
    return make_form(target.source, target.reordering, fences).count_kept_nbytes(nbytes)


def _count_baseline_nbytes(problem: Problem) -> int:
    """Return what the graph needs without recompute, in its arena where that counts."""
    schedule = insert_frees(problem.graph, order_all(problem))
    peak_nbytes = simulate(problem, schedule).peak.nbytes
    return max(peak_nbytes, count_budget_nbytes(problem, schedule))


def count_device_nbytes(source: Source, provider: Literal["auto", "cuda", "cpu"]) -> int:
    """Return what a run has on the device of this machine.

    Raises `UsageError` when the costs are of another provider than that device's: then the run is
    meant for another machine.
    """
    device = probe_device(provider)
    measured_on = source.problem.costs.origin.provider
    if measured_on not in ("", device.provider):
        raise UsageError(
            f"the costs were measured on {measured_on} ({source.problem.costs.origin.device}), but"
            f" the device of this machine is {device.provider} ({device.name})",
            hint="give --budget a size, or choose the device with --provider",
        )
    echo_note(
        f"device: {device.name}, {format_nbytes(device.nbytes)}, of which"
        f" {format_nbytes(RESERVE_NBYTES)} are kept in reserve"
    )
    return count_whole_budget_nbytes(device)
