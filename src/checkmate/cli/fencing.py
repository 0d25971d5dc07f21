"""The choice of fences: asked for, possible, written down and read again."""

from __future__ import annotations

from typing import Literal, get_args

import click

from checkmate.cli.report import echo_note
from checkmate.cli.source import Source
from checkmate.formats.schedule_json import ScheduleRecord
from checkmate.onnxio.fences import find_obstacle, parse_fences
from checkmate.onnxio.windows import Fences

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


def read_fences(record: ScheduleRecord) -> Fences:
    """Return the fences of the model that belongs to ``record``."""
    return parse_fences(record.runtime.get("fences", "none"))
