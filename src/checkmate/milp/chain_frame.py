"""What the rows of a chain are made from: its columns, and sizes in the unit of memory rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from checkmate.graph import find_readers
from checkmate.milp.chain import Chain
from checkmate.milp.chain_columns import Columns, make_columns
from checkmate.milp.chain_hops import Hops, find_hops
from checkmate.milp.frame import choose_power, choose_unit
from checkmate.milp.model import FloatArray
from checkmate.problem import Problem

Nbytes = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Frame:
    """A chain as the rows see it.

    What is in memory whatever the schedule is counted to the byte; sizes and what is left of the
    budget are rounded down to whole units, so that what fits in bytes fits in units too.
    """

    chain: Chain
    problem: Problem
    """Of the chain's ops."""
    hops: Hops
    columns: Columns
    sizes: FloatArray
    """Per tensor, in units times a power of two; 0 for tensors that are not forward tensors."""
    unit_nbytes: int
    scale: float
    budget_nbytes: int
    fixed_nbytes: Nbytes
    """Per op: what is in memory while it runs whatever the schedule, its workspace included; one
    more for the end. For forward ops that were moved: without their workspace."""
    before_nbytes: Nbytes
    """Per op, and the end: the part of that which is there before it runs."""

    def find_room(self, fixed_nbytes: int) -> float:
        """Return what is left for forward tensors, in the unit of the rows."""
        return (self.budget_nbytes - fixed_nbytes) // self.unit_nbytes * self.scale

    def scale_down(self, nbytes: int) -> float:
        """Return ``nbytes``, rounded down, in the unit of the rows."""
        return nbytes // self.unit_nbytes * self.scale


def make_frame(chain: Chain, problem: Problem, budget_nbytes: int, depth: int | None) -> Frame:
    """Return the frame of ``problem``, of the chain's ops, for recomputes near within ``depth``."""
    graph = chain.graph
    hops = find_hops(chain, depth)
    forward = [
        e for op, is_ in zip(graph.ops, chain.is_forward, strict=True) if is_ for e in op.outputs
    ]
    nbytes = [graph.tensors[e].nbytes for e in forward]
    room_nbytes = max(budget_nbytes - graph.resident_nbytes, 1)
    unit_nbytes = choose_unit(math.gcd(*nbytes), room_nbytes)
    scale = choose_power(room_nbytes // unit_nbytes)
    sizes = np.zeros(len(graph.tensors))
    sizes[forward] = np.array(nbytes, dtype=np.int64) // unit_nbytes * scale
    fixed, before = _find_fixed(chain, problem)
    return Frame(
        chain, problem, hops, make_columns(chain, hops), sizes, unit_nbytes, scale, budget_nbytes,
        fixed, before,
    )  # fmt: skip


def _find_fixed(chain: Chain, problem: Problem) -> tuple[Nbytes, Nbytes]:
    """Return `Frame.fixed_nbytes` and `Frame.before_nbytes`.

    Those are the resident tensors, what backward ops made and is still to be read, the forward
    tensors that the last op of a stage reads or makes and, in the forward pass, what is still to
    be read there.
    """
    graph, n = chain.graph, len(chain.graph.ops)
    change = np.zeros(n + 2, dtype=np.int64)
    made = np.zeros(n + 1, dtype=np.int64)
    for first, last, nbytes in _find_lives(chain):
        change[first] += nbytes
        change[last + 1] -= nbytes
        made[first] += nbytes
    live = graph.resident_nbytes + np.cumsum(change[:-1])
    before = live - made
    for s, stage in enumerate(chain.stages):
        held = (*chain.find_last_reads(s), *chain.find_last_makes(s))
        live[stage.last] += sum(graph.tensors[e].nbytes for e in held)
    return live + np.array([*problem.costs.workspace_nbytes, 0], dtype=np.int64), before


def _find_lives(chain: Chain) -> Iterator[tuple[int, int, int]]:
    """Yield the first and last op, and the bytes, of each tensor as far as they are fixed."""
    graph, readers = chain.graph, find_readers(chain.graph)
    for e, tensor in enumerate(graph.tensors):
        k = tensor.producer
        if k is None:
            continue
        if not chain.is_forward[k]:
            is_kept = e in graph.outputs
            yield k, len(graph.ops) if is_kept else max((k, *readers[e])), tensor.nbytes
        elif k < chain.n_forward:
            uses = (reader for reader in readers[e] if reader < chain.n_forward)
            yield k, max((k, *uses)), tensor.nbytes
