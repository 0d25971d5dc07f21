"""The choice of fences: asked for, possible, written down and read again."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import click

from checkmate.cli.report import echo_note
from checkmate.cli.source import Source
from checkmate.engine.written import Form, Forms, Search, solve_written
from checkmate.formats.schedule_json import ScheduleRecord
from checkmate.onnxio.expand import expand
from checkmate.onnxio.fences import find_obstacle, parse_fences
from checkmate.onnxio.windows import Fences
from checkmate.plan import Plan
from checkmate.problem import Problem
from checkmate.reordering import Reordering

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
    if source.model is not None and asked != "none":
        obstacle = find_obstacle(source.model, source.problem.costs.origin.provider)
        if obstacle is not None:
            echo_note(
                f"no fences: {obstacle}; run the model with the options that the schedule names"
            )
    return foresee_fences(source, asked)


def foresee_fences(source: Source, asked: Choice) -> Fences:
    """Return what `choose_fences` does, without a word."""
    provider = source.problem.costs.origin.provider
    if source.model is None or asked == "none" or find_obstacle(source.model, provider):
        return "none"
    if asked == "auto":
        return "run" if provider == "cuda" else "all"
    return asked


def solve_fenced(
    source: Source, reordering: Reordering, search: Search, asked: Choice
) -> tuple[Plan, Fences]:
    """Return a plan that stays within its budget with its fences, and which these are.

    It is searched for in the order of ``reordering``. Where ``auto`` finds no room for fences,
    there are none, with a notice.
    """
    fences = choose_fences(source, asked)
    bare = make_form(source, reordering, "none")
    fenced = None if fences == "none" else make_form(source, reordering, fences)
    plan, held = solve_written(Forms(bare, fenced, asked == "auto"), search, echo_note)
    return plan, fences if held else "none"


def make_form(source: Source, reordering: Reordering, fences: Fences) -> Form:
    """Return how schedules of ``source`` are written with ``fences``."""
    adapted = replace(
        reordering,
        original=adapt(reordering.original, fences),
        reordered=adapt(reordering.reordered, fences),
    )
    model, problem = source.model, source.problem
    if model is None:
        return Form(adapted)
    spare_nbytes = _KEPT_NBYTES if fences == "all" else 0
    return Form(adapted, lambda schedule: expand(problem, model, schedule, fences), spare_nbytes)


def adapt(problem: Problem, fences: Fences) -> Problem:
    """Return ``problem`` as it is with ``fences``.

    Behind all of them onnxruntime knows few shapes before the run, so that hardly any output takes
    over the storage of an input.
    """
    if problem.arena is None or fences != "all":
        return problem
    return replace(problem, arena=replace(problem.arena, in_place={}))


def read_fences(record: ScheduleRecord) -> Fences:
    """Return the fences of the model that belongs to ``record``."""
    return parse_fences(record.runtime.get("fences", "none"))
