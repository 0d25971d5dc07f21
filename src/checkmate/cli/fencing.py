"""The choice of fences: asked for, possible, written down and read again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import click

from checkmate.arena import count_budget_nbytes, is_within
from checkmate.cli.report import echo_note
from checkmate.cli.source import Source
from checkmate.engine.reserve import NoRoomError, solve_with_room
from checkmate.engine.solve import solve
from checkmate.formats.schedule_json import ScheduleRecord
from checkmate.onnxio.expand import expand
from checkmate.onnxio.fences import find_obstacle, parse_fences
from checkmate.onnxio.windows import Fences
from checkmate.placement import CHUNK_NBYTES
from checkmate.plan import Plan
from checkmate.schedule import Schedule
from checkmate.search.finding import Limits
from checkmate.simulate import simulate

_KEPT_NBYTES = 1024
"""Default options keep dead tensors for later ones of their shape. With all fences, few shapes are
known before the run, those of small tensors: at most 432 bytes were measured."""

Choice = Literal["auto", "none", "run", "all"]
"""What may be asked for."""

fences_option = click.option(
    "--fences",
    type=click.Choice(get_args(Choice)),
    default="auto",
    show_default=True,
    help="Where the written model holds its order by itself; auto: all, on CUDA run.",
)


def choose_fences(source: Source, asked: Choice) -> Fences:
    """Return what was ``asked`` for, or none, with a notice, where the model cannot have any.

    ``auto`` is all fences, which alone hold the peak under default options; but for costs of CUDA
    those before runs of recomputes, as there each fence makes the host wait for the device.
    """
    if source.model is None or asked == "none":
        return "none"
    obstacle = find_obstacle(source.model)
    if obstacle is not None:
        echo_note(f"no fences: {obstacle}; run the model with the options that the schedule names")
        return "none"
    if asked == "auto":
        return "run" if source.problem.costs.origin.provider == "cuda" else "all"
    return asked


@dataclass(frozen=True, slots=True)
class Search:
    """What to search for, and how long."""

    budget_nbytes: int
    strategy: str
    limits: Limits


def solve_fenced(source: Source, search: Search, asked: Choice) -> tuple[Plan, Fences]:
    """Return a plan that stays within its budget with its fences, and which these are.

    Where ``auto`` finds no room for them, there are none, with a notice.
    """
    problem, model, budget_nbytes = source.problem, source.model, search.budget_nbytes
    fences = choose_fences(source, asked)
    how = (search.strategy, search.limits)
    if model is None or fences == "none":
        return solve(problem, budget_nbytes, *how), "none"

    def find_need(schedule: Schedule) -> int:
        expanded, run = expand(problem, model, schedule, fences)
        kept_nbytes = _KEPT_NBYTES if fences == "all" else 0
        peak_nbytes = simulate(expanded, run).peak.nbytes + kept_nbytes
        if is_within(expanded, run, budget_nbytes):
            return peak_nbytes
        return max(peak_nbytes, count_budget_nbytes(expanded, run), budget_nbytes + CHUNK_NBYTES)

    try:
        return solve_with_room(problem, budget_nbytes, *how, find_need), fences
    except NoRoomError as error:
        if asked != "auto":
            raise
        echo_note(f"no fences: {error.message}; run with the options that the schedule names")
        return solve(problem, budget_nbytes, *how), "none"


def read_fences(record: ScheduleRecord) -> Fences:
    """Return the fences of the model that belongs to ``record``."""
    return parse_fences(record.runtime.get("fences", "none"))
