"""Options that commands share, and the values that they take."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import click

from checkmate.engine.ordering import ORDERS
from checkmate.errors import UsageError
from checkmate.formats.schedule_json import Optimization
from checkmate.runtime.protocol import Level
from checkmate.units import Share, parse_size

_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PERCENT = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)%")


class Size(click.ParamType[int | Share]):
    """A size with a unit, or a share of the peak without recompute."""

    name = "size"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | Share:
        """Return bytes or a share."""
        return value if isinstance(value, int | Share) else parse_size(str(value))


class Duration(click.ParamType[float]):
    """A time span with a unit."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return seconds."""
        if isinstance(value, float):
            return value
        match = _DURATION.fullmatch(str(value))
        if match is None or float(match[1]) == 0:
            raise UsageError(
                f"time {value!r} is not a positive number with a unit",
                hint="write a time as 500ms, 30s, 10m or 1h",
            )
        return float(match[1]) * _SECONDS[match[2]]


class Percent(click.ParamType[float]):
    """A percentage."""

    name = "percent"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return a fraction."""
        if isinstance(value, float):
            return value
        match = _PERCENT.fullmatch(str(value))
        if match is None:
            raise UsageError(
                f"{str(value)!r} is not a percentage of zero or more",
                hint="write a gap as 1% or 0.5%",
            )
        return float(match[1]) / 100


def parse_dims(texts: Sequence[str]) -> dict[str, int]:
    """Return the dimensions that ``--dim NAME=VALUE`` options bind."""
    dims: dict[str, int] = {}
    for text in texts:
        name, _, value = text.rpartition("=")
        if not name or not re.fullmatch(r"[0-9]{1,15}", value) or int(value) == 0:
            raise UsageError(
                f"--dim {text!r} does not bind a dimension to a number above zero",
                hint="write --dim N=32",
            )
        if name in dims:
            raise UsageError(f"--dim binds {name!r} twice, to {dims[name]} and {value}")
        dims[name] = int(value)
    return dims


DEFAULT_OPTIMIZATION: Level = "extended"
"""See docs/performance.md for what each level gains."""

model_argument = click.argument("model", type=click.Path(path_type=Path))
dim_option = click.option(
    "--dim", "dims", multiple=True, metavar="NAME=VALUE", help="Bind a symbolic dimension."
)
loss_option = click.option("--loss", metavar="NAME", help="Output that is the loss.")
costs_option = click.option(
    "--costs",
    default="auto",
    metavar="auto|flops|FILE",
    help="Measure each op, count from shapes, or read a costs file.  [default: auto]",
)
provider_option = click.option(
    "--provider",
    type=click.Choice(["auto", "cuda", "cpu"]),
    default="auto",
    help="Execution provider to measure on.  [default: auto]",
)
optimize_option = click.option(
    "--optimize",
    type=click.Choice(list(get_args(Optimization))),
    help=f"Optimize the graph first, as onnxruntime does.  [default: {DEFAULT_OPTIMIZATION}]",
)
order_option = click.option(
    "--order",
    type=click.Choice(list(ORDERS)),
    default="file",
    show_default=True,
    help="Order of the ops: of the file, or one that needs less memory.",
)
shapes_option = click.option(
    "--shapes-from-run", is_flag=True, help="Take shapes that no rule tells from one run."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
