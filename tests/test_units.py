"""Sizes as people write them."""

from __future__ import annotations

import pytest

from checkmate.errors import UsageError
from checkmate.units import (
    Share,
    format_nbytes,
    format_nbytes_exactly,
    format_ns,
    format_ratio,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("10GB", 10_000_000_000), ("10GiB", 10_737_418_240), ("10G", 10_737_418_240),
        ("9.3GiB", 9_985_798_963), ("10976400000B", 10_976_400_000), ("512M", 536_870_912),
        ("1KB", 1_000), ("1KiB", 1_024), (" 1.5 MiB ", 1_572_864), ("1TB", 10**12),
    ],
)  # fmt: skip
def test_binary_and_decimal_units_are_different(text: str, nbytes: int) -> None:
    assert parse_size(text) == nbytes


def test_a_share_is_of_the_peak_without_recompute() -> None:
    share = parse_size("75%")
    assert isinstance(share, Share)
    assert share.of(9_900_000_001) == 7_425_000_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("8", "'8' has no unit"), ("-1GiB", "not a positive number"),
        ("8Gib", "unknown unit 'Gib'"),
        ("eight", "not a positive number"), ("0GiB", "not above zero"),
        ("0.1B", "less than one byte"),
        ("1e9B", "not a positive number"), ("", "not a positive"), ("nan%", "not a positive"),
        ("\u0661GiB", "not a positive"),
    ],
)  # fmt: skip
def test_a_size_that_cannot_be_meant_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_size(text)


def test_a_bare_number_gets_a_hint() -> None:
    with pytest.raises(UsageError) as caught:
        parse_size("8")
    assert caught.value.hint is not None
    assert "did you mean 8GiB?" in caught.value.hint


def test_quantities_are_printed_for_people() -> None:
    assert format_nbytes(0) == "0 B"
    assert format_nbytes(1_536) == "1.50 KiB"
    assert format_nbytes_exactly(2**30) == "1,073,741,824 B (1.000 GiB)"
    assert format_ns(1_500) == "1.500 us"
    assert format_ns(999) == "999 ns"
    assert format_ratio(11, 10) == "+10.00 %"
    assert format_ratio(1, 0) == "-"
