"""The columns of the program of a chain.

- ``run[s, k]``: op ``k`` runs before the last op of stage ``s``; near recomputes only.
- ``spans``: what is retained, see `chain_spans`; ``state[s, e]`` is the column that says so of
  tensor ``e`` at the start of stage ``s``, -1 where none does.
- ``returns``: a deep recompute of an op in some stages; one column for all its outputs.
- ``again[k]``: op ``k`` is recomputed in some stage.
- ``one``: the constant 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from checkmate.graph import OpId, TensorId, find_readers
from checkmate.milp.chain import Chain
from checkmate.milp.chain_hops import Hops
from checkmate.milp.chain_spans import Source, Span, Tale, find_spans
from checkmate.milp.model import BoolArray, IntArray

ONE = 0
NONE = -1


@dataclass(frozen=True, slots=True)
class Return:
    """Deep recomputes of one op, in the stages ``first`` to ``last``."""

    op: OpId
    first: int
    last: int
    column: int
    is_spare: bool = False
    """True: in those of the stages that no other return of the op has."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Where each decision is among the columns."""

    run: Mapping[tuple[int, OpId], int]
    """By stage and op, ascending."""
    spans: tuple[tuple[Span, int], ...]
    """With their columns, tensor by tensor."""
    state: IntArray
    """Per stage, and one for the end, and tensor."""
    returns: Mapping[OpId, tuple[Return, ...]]
    again: Mapping[OpId, int]
    count: int

    def find_return(self, source: Source) -> int:
        """Return the column of the deep ``source``."""
        for one in self.returns[source.maker]:
            if one.first <= source.first and source.last <= one.last and not one.is_spare:
                return one.column
        raise AssertionError(source)


def make_columns(chain: Chain, hops: Hops) -> Columns:
    """Return the columns of the schedules of ``chain``."""
    numbers = _Numbers()
    n_stages = len(chain.stages)
    run = {(s, k): numbers.take() for s in range(n_stages) for k in hops.near[s]}
    state = np.full((n_stages + 1, len(chain.graph.tensors)), NONE, dtype=np.int32)
    spans: list[tuple[Span, int]] = []
    for tale in _tell_tales(chain, hops):
        for span in find_spans(tale):
            column = numbers.take()
            state[span.first : span.last + 1, tale.tensor] = column
            spans.append((span, column))
    deep_sources = [
        span.source for span, _ in spans if span.source is not None and not span.source.is_near
    ]
    returns = _group(deep_sources, hops.deep, numbers)
    again = {k: numbers.take() for k in dict.fromkeys(sorted(k for _, k in run))}
    return Columns(run, tuple(spans), state, returns, again, numbers.count)


class _Numbers:
    """Numbers of columns, one after the other."""

    def __init__(self) -> None:
        self.count = 1  # the first is `ONE`

    def take(self) -> int:
        self.count += 1
        return self.count - 1


def _tell_tales(chain: Chain, hops: Hops) -> Iterator[Tale]:
    readers = find_readers(chain.graph)
    near = np.zeros_like(hops.deep)
    for s, ops in enumerate(hops.near):
        near[s, list(ops)] = True
    last_reads: dict[TensorId, list[int]] = {}
    for s in range(len(chain.stages)):
        for e in chain.find_last_reads(s):
            last_reads.setdefault(e, []).append(s)
    by_last = {stage.last: [s] for s, stage in enumerate(chain.stages)}
    for i, op in enumerate(chain.graph.ops):
        for e in op.outputs if chain.is_forward[i] else ():
            forward = [reader for reader in readers[e] if chain.is_forward[reader]]
            touched = near[:, i] | near[:, forward].any(axis=1)
            touched[last_reads.get(e, [])] = True
            touched[by_last.get(i, [])] = True
            yield Tale(
                tensor=e,
                maker=OpId(i),
                touches=tuple(int(s) for s in np.flatnonzero(touched)),
                starts_late=i >= chain.n_forward,
                near_makes=near[:, i],
                deep_makes=hops.deep[:, i],
                deep_reads=np.any(hops.deep[:, forward], axis=1),
            )


def _group(
    sources: Sequence[Source], deep: BoolArray, numbers: _Numbers
) -> dict[OpId, tuple[Return, ...]]:
    """Return one return per op and group of overlapping ``sources``, and a spare for the rest.

    One recompute makes all outputs of an op, so that what is between two touches of one of its
    outputs and overlaps with the same of another is charged once.
    """
    found: dict[OpId, tuple[Return, ...]] = {}
    ranges: dict[OpId, list[tuple[int, int]]] = {
        OpId(int(k)): [] for k in np.flatnonzero(deep.any(axis=0))
    }
    for source in sources:
        ranges[source.maker].append((source.first, source.last))
    for k, given in ranges.items():
        merged = _merge(sorted(given))
        rest = deep[:, k].copy()
        for first, last in merged:
            rest[first : last + 1] = False
        returns = [Return(k, first, last, numbers.take()) for first, last in merged]
        if rest.any():
            returns.append(Return(k, 0, len(deep) - 1, numbers.take(), is_spare=True))
        found[k] = tuple(returns)
    return found


def _merge(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ``ranges``, sorted, with those that overlap made one."""
    merged: list[tuple[int, int]] = []
    for first, last in ranges:
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged
