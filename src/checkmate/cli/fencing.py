"""The choice of fences: asked for, possible, written down and read again."""

from __future__ import annotations

import click

from checkmate.cli.report import echo_note
from checkmate.cli.source import Source
from checkmate.formats.schedule_json import ScheduleRecord
from checkmate.onnxio.fences import find_obstacle, parse_fences
from checkmate.onnxio.windows import FENCES, Fences

fences_option = click.option(
    "--fences",
    type=click.Choice(list(FENCES)),
    default="run",
    show_default=True,
    help="Where the written model holds its order by itself.",
)


def choose_fences(source: Source, asked: Fences) -> Fences:
    """Return what was ``asked`` for, or none, with a notice, where the model cannot have any."""
    if source.model is None or asked == "none":
        return "none"
    obstacle = find_obstacle(source.model)
    if obstacle is None:
        return asked
    echo_note(f"no fences: {obstacle}; run the model with the options that the schedule names")
    return "none"


def read_fences(record: ScheduleRecord) -> Fences:
    """Return the fences of the model that belongs to ``record``."""
    return parse_fences(record.runtime.get("fences", "none"))
