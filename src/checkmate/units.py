"""Sizes as people write them: ``8GiB``, ``9.3 GB``, ``75%``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

from checkmate.errors import UsageError

MAX_QUANTITY = 2**53 - 1
"""The largest number of bytes or nanoseconds: what every JSON reader keeps exact."""

_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_NBYTES_OF_UNIT = (
    {"B": 1}
    | _BINARY
    | {f"{prefix}iB": nbytes for prefix, nbytes in _BINARY.items()}
    | {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
)
_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([A-Za-z%]*)")
_HINT = "write a size as 8GiB, 512M, 9.3GB or 75% (of the peak without recompute)"


@dataclass(frozen=True, slots=True)
class Share:
    """A size relative to the peak without recompute."""

    percent: Decimal

    def of(self, nbytes: int) -> int:
        """Return this share of ``nbytes``, rounded down to whole bytes."""
        return int(self.percent * nbytes / 100)


def parse_size(text: str) -> int | Share:
    """Return the bytes, or the share, that ``text`` means.

    K, M, G, T and KiB, MiB, GiB, TiB are binary; KB, MB, GB, TB are decimal. Raises
    `UsageError` for a bare number, an unknown unit, or a size that is not above zero.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"size {text!r} is not a positive number with a unit", hint=_HINT)
    number, unit = Decimal(match[1]), match[2]
    if number <= 0:
        raise UsageError(f"size {text!r} is not above zero", hint=_HINT)
    if unit == "%":
        return Share(number)
    if unit == "":
        raise UsageError(
            f"size {text!r} has no unit", hint=f"did you mean {text.strip()}GiB? {_HINT}"
        )
    if unit not in _NBYTES_OF_UNIT:
        known = ", ".join(_NBYTES_OF_UNIT)
        raise UsageError(f"size {text!r} has unknown unit {unit!r}", hint=f"units are {known} or %")
    nbytes = int(number * _NBYTES_OF_UNIT[unit])
    if nbytes == 0:
        raise UsageError(f"size {text!r} is less than one byte", hint=_HINT)
    if nbytes > MAX_QUANTITY:
        raise UsageError(f"size {text!r} is larger than any memory", hint=_HINT)
    return nbytes


def format_nbytes(nbytes: int) -> str:
    """Return ``nbytes`` for people: two decimals in the largest binary unit that fits."""
    for prefix in ("T", "G", "M", "K"):
        if abs(nbytes) >= _BINARY[prefix]:
            return f"{nbytes / _BINARY[prefix]:.2f} {prefix}iB"
    return f"{nbytes} B"


def format_nbytes_exactly(nbytes: int) -> str:
    """Return ``nbytes`` in bytes and in GiB, as budgets are echoed."""
    return f"{nbytes:,} B ({nbytes / 2**30:.3f} GiB)"


def format_ns(time_ns: int) -> str:
    """Return ``time_ns`` for people."""
    for unit, scale in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if time_ns >= scale:
            return f"{time_ns / scale:.3f} {unit}"
    return f"{time_ns} ns"


def format_ratio(numerator: int, denominator: int) -> str:
    """Return ``numerator / denominator - 1`` as a signed percentage, ``-`` if undefined."""
    return f"{100 * (numerator / denominator - 1):+.2f} %" if denominator else "-"
