"""What ``--budget`` may be, and the bytes that it means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import click

from checkmate.cli.options import Size
from checkmate.cli.report import echo_note
from checkmate.cli.source import Source
from checkmate.errors import UsageError
from checkmate.runtime.device import RESERVE_NBYTES, count_whole_budget_nbytes, probe_device
from checkmate.units import Share, format_nbytes, format_nbytes_exactly


@dataclass(frozen=True, slots=True)
class WholeDevice:
    """All memory of the device, less the reserve."""


class Budget(click.ParamType[int | Share | WholeDevice]):
    """A size with a unit, a share of the peak without recompute, or the whole device."""

    name = "size"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | Share | WholeDevice:
        """Return what the text means."""
        if isinstance(value, WholeDevice):
            return value
        return WholeDevice() if value == "device" else Size().convert(value, param, ctx)


def find_budget_nbytes(
    asked: int | Share | WholeDevice,
    baseline_nbytes: int,
    source: Source,
    provider: Literal["auto", "cuda", "cpu"],
) -> int:
    """Return the bytes of the budget ``asked`` for, and print them."""
    if isinstance(asked, WholeDevice):
        budget_nbytes = _count_device_nbytes(source, provider)
    else:
        budget_nbytes = asked if isinstance(asked, int) else asked.of(baseline_nbytes)
    echo_note(f"budget {format_nbytes_exactly(budget_nbytes)}")
    return budget_nbytes


def _count_device_nbytes(source: Source, provider: Literal["auto", "cuda", "cpu"]) -> int:
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
