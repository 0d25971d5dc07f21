"""Which recomputes have a column of their own: those near the op that they serve.

A recompute within ``depth`` steps of the last op of its stage is *near*; others are *deep* and
appear only where they bring a tensor back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from checkmate.graph import OpId, find_readers
from checkmate.milp.chain import Chain, find_reachable
from checkmate.milp.model import BoolArray


@dataclass(frozen=True, slots=True)
class Hops:
    """The near recomputes of each stage, and all that are possible."""

    near: tuple[tuple[OpId, ...], ...]
    """Per stage, ascending; every op that may run again is near in some stage, unless nothing is
    deep."""
    deep: BoolArray
    """Per stage and op: it may run in the stage but is not near."""

    def allow(self, windows: Sequence[Sequence[OpId]]) -> bool:
        """Return whether all recomputes of ``windows``, per stage, are possible."""
        return all(
            k in near or self.deep[s, k]
            for s, (near, window) in enumerate(zip(map(set, self.near), windows, strict=True))
            for k in window
        )

    def forbid_deep(self) -> Hops:
        """Return the near recomputes as all that are possible."""
        return replace(self, deep=np.zeros_like(self.deep))


def find_hops(chain: Chain, depth: int | None) -> Hops:
    """Return the recomputes within ``depth`` steps; None: all that are possible."""
    reachable = find_reachable(chain)
    near = [_find_within(chain, s, depth) for s in range(len(chain.stages))]
    for k, s in _find_nearest(chain).items():
        near[s].add(k)
    deep = reachable.copy()
    for s, ops in enumerate(near):
        deep[s, list(ops)] = False
    return Hops(tuple(tuple(sorted(ops)) for ops in near), deep)


def choose_hops(chain: Chain, windows: Iterable[Iterable[OpId]]) -> Hops:
    """Return the recomputes of ``windows``, per stage, as all that are possible."""
    near = tuple(tuple(sorted(set(window))) for window in windows)
    return Hops(near, np.zeros((len(near), len(chain.graph.ops)), dtype=np.bool_))


def has_few_near(chain: Chain, depth: int | None, most: int) -> bool:
    """Return whether at most ``most`` recomputes are within ``depth`` steps, of all stages."""
    left = most
    for s in range(len(chain.stages)):
        left -= len(_find_within(chain, s, depth))
        if left < 0:
            return False
    return True


def _find_within(chain: Chain, s: int, depth: int | None) -> set[OpId]:
    """Return the ops within ``depth`` steps of the last op of stage ``s``."""
    found: set[OpId] = set()
    front = chain.find_parents(chain.find_last_reads(s))
    while front and depth != 0:
        found.update(front)
        above = chain.find_parents(e for k in front for e in chain.graph.ops[k].inputs)
        front = [k for k in above if k not in found]
        depth = None if depth is None else depth - 1
    return found


def _find_nearest(chain: Chain) -> dict[OpId, int]:
    """Return, per op that may run again, the stage whose last op is the fewest steps away."""
    readers = find_readers(chain.graph)
    by_last = {stage.last: s for s, stage in enumerate(chain.stages)}
    nearest: dict[OpId, tuple[int, int]] = {}
    for i in reversed(range(len(chain.graph.ops))):
        op = chain.graph.ops[i]
        if not chain.is_forward[i] or not op.recomputable:
            continue
        is_output = any(e in chain.graph.outputs for e in op.outputs)
        ways = [(1, len(chain.stages) - 1)] if is_output else []
        for reader in (reader for e in op.outputs for reader in readers[e]):
            if reader in by_last:
                ways.append((1, by_last[reader]))
            elif reader in nearest:
                steps, s = nearest[reader]
                ways.append((steps + 1, s))
        if ways:
            nearest[OpId(i)] = min(ways)
    return {k: s for k, (_, s) in nearest.items()}
