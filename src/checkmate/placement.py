"""Where a run puts tensors: what is known of the arena from which it takes memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from checkmate.graph import OpId, TensorId

CHUNK_NBYTES = 256
"""All chunks are multiples of this."""


def round_up(nbytes: int) -> int:
    """Return the size of the chunk that a request of ``nbytes`` takes."""
    return -(-nbytes // CHUNK_NBYTES) * CHUNK_NBYTES


Region = Literal["exact", "whole"]
"""Regions are what each request needs (``kSameAsRequested``), or there is one, of the limit."""


@dataclass(frozen=True, slots=True)
class ArenaSetup:
    """How an arena grows and splits."""

    region: Region = "whole"
    max_dead_nbytes: int = CHUNK_NBYTES
    """A request gets less than this beyond its need, or less than twice its need."""


@dataclass(frozen=True, slots=True)
class ArenaRules:
    """How an arena is set up, and what it holds."""

    setup: ArenaSetup = field(default_factory=ArenaSetup)
    resident: tuple[TensorId, ...] = ()
    """Resident tensors that lie in the arena; the caller or the session holds all others."""
    in_place: Mapping[TensorId, TensorId] = field(default_factory=dict)
    """Per output: the input whose storage it takes over when that dies with the op."""
    partial: frozenset[OpId] = frozenset()
    """Ops whose workspace is partial results of the size of their output."""
    n_later: Mapping[OpId, int] = field(default_factory=dict)
    """Per op of ``partial``: how many more it makes, each in the place of the one before, which
    is there until the new one is done."""
