"""For how many stages one column can say that a tensor is retained.

A near recompute, or the last op of a stage, that reads or makes a tensor *touches* it; what is
retained around a touch has columns of its own. Between two touches only deep recomputes read or
make the tensor, and few columns suffice:

- it can leave memory only after the first deep read; up to there it is as it was;
- after the last deep read or deep recompute it is as it is at the next touch;
- in between one column stands for the least of it: free to be 0, and what is more at the next
  touch was brought back by a deep recompute, which has a cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from checkmate.graph import OpId, TensorId
from checkmate.milp.model import BoolArray


@dataclass(frozen=True, slots=True)
class Tale:
    """What happens to one forward tensor, stage by stage."""

    tensor: TensorId
    maker: OpId
    touches: tuple[int, ...]
    """The stages that touch it, ascending; empty: it has no columns."""
    starts_late: bool
    """True: it is made at the end of the stage of its first touch; False: in the forward pass."""
    near_makes: BoolArray
    """Per stage."""
    deep_makes: BoolArray
    deep_reads: BoolArray


@dataclass(frozen=True, slots=True)
class Source:
    """What can bring a tensor back: its producer in one of the stages ``first`` to ``last``."""

    maker: OpId
    first: int
    last: int
    is_near: bool


@dataclass(frozen=True, slots=True)
class Span:
    """One column: the tensor is in memory at the start of each of some stages."""

    tensor: TensorId
    first: int
    """The column counts from this stage to ``last``."""
    last: int
    least_from: int
    """It is 1 when the tensor is retained into each stage from this one to ``least_to``."""
    least_to: int
    before: bool
    """Whether it is at most the span before it, plus ``source``; False for a first span."""
    source: Source | None


_Entry = tuple[bool, Source | None]
"""`Span.before` and `Span.source` of the first span after a touch."""


def find_spans(tale: Tale) -> Iterator[Span]:
    """Yield the columns of one tensor, in the order of their stages."""
    before = -1
    entry: _Entry = (False, None)
    for touch in tale.touches:
        is_birth = tale.starts_late and before < 0
        if not is_birth:
            yield from _cross(tale, before, touch, entry)
        before, entry = touch, (not is_birth, _find_source(tale, touch))


def _cross(tale: Tale, before: int, touch: int, entry: _Entry) -> Iterator[Span]:
    """Yield the spans from after the touch of stage ``before`` up to stage ``touch``."""
    first = before + 1
    reads = [first + int(s) for s in np.flatnonzero(tale.deep_reads[first:touch])]
    makes = [first + int(s) for s in np.flatnonzero(tale.deep_makes[first:touch])]
    if not reads and not makes:
        yield Span(tale.tensor, first, touch, first, touch, *entry)
        return
    ends = _find_ends(reads, makes)
    source = Source(tale.maker, makes[0], makes[-1], is_near=False) if makes else None
    yield Span(tale.tensor, first, ends[0], first, ends[0], *entry)
    for end in ends[1:]:
        yield Span(tale.tensor, ends[0] + 1, end, first, touch, before=True, source=None)
    yield Span(tale.tensor, ends[-1] + 1, touch, ends[-1] + 1, touch, before=True, source=source)


def _find_ends(reads: Sequence[int], makes: Sequence[int]) -> list[int]:
    """Return the last stage of the first span, then that of the middle one where there is one."""
    if not reads:
        return [makes[-1]]
    if not makes:
        return [reads[0]]
    ends = [reads[0], max(reads[-1], makes[-1])]
    return ends if ends[0] < ends[1] else ends[:1]


def _find_source(tale: Tale, stage: int) -> Source | None:
    """Return what may make the tensor in a stage that touches it."""
    if tale.near_makes[stage]:
        return Source(tale.maker, stage, stage, is_near=True)
    if tale.deep_makes[stage]:
        return Source(tale.maker, stage, stage, is_near=False)
    return None
