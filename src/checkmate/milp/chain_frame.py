"""What the rows of a chain are made from: its columns, and sizes in the unit of memory rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from checkmate.graph import OpId, TensorId, find_readers
from checkmate.milp.chain import Chain
from checkmate.milp.chain_columns import Columns, make_columns
from checkmate.milp.chain_hops import Hops, choose_hops, find_hops
from checkmate.milp.frame import choose_power, choose_unit
from checkmate.milp.model import FloatArray
from checkmate.problem import Problem

Nbytes = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Scale:
    """Bytes in the unit of the rows: whole units times a power of two."""

    unit_nbytes: int
    power: float
    rounds_up: bool
    """True: what fits in units fits in bytes; False: what fits in bytes fits in units."""

    def convert(self, nbytes: int) -> float:
        """Return ``nbytes`` of a tensor or a workspace."""
        units = -(-nbytes // self.unit_nbytes) if self.rounds_up else nbytes // self.unit_nbytes
        return units * self.power

    def convert_room(self, nbytes: int) -> float:
        """Return ``nbytes`` of room for tensors."""
        return nbytes // self.unit_nbytes * self.power


@dataclass(frozen=True, slots=True)
class Frame:
    """A chain as the rows see it."""

    chain: Chain
    problem: Problem
    hops: Hops
    columns: Columns
    scale: Scale
    sizes: FloatArray
    """Per tensor; 0 for tensors that are not forward tensors."""
    budget_nbytes: int
    fixed_nbytes: Nbytes
    """Per op: what is in memory while it runs whatever the schedule, its workspace included."""
    before_nbytes: Nbytes
    """Per op: the part of that which is there before it, and its recomputes, run."""

    def find_room(self, fixed_nbytes: int) -> float:
        """Return what is left for forward tensors beside ``fixed_nbytes``, counted in bytes."""
        return self.scale.convert_room(self.budget_nbytes - fixed_nbytes)


def make_bounding_frame(
    chain: Chain, problem: Problem, budget_nbytes: int, depth: int | None
) -> Frame:
    """Return the frame of a program that has every schedule of the class that fits.

    Recomputes within ``depth`` steps are near; None: all are.
    """
    return _make_frame(chain, problem, budget_nbytes, find_hops(chain, depth))


def make_limiting_frame(
    chain: Chain, problem: Problem, budget_nbytes: int, depth: int | None
) -> Frame:
    """Return the frame of a program whose every schedule fits, with near recomputes alone.

    That a schedule fits while recomputes run depends on the rows of their windows.
    """
    hops = find_hops(chain, depth).forbid_deep()
    return _make_frame(chain, problem, budget_nbytes, hops, rounds_up=True)


def make_chosen_frame(
    chain: Chain, problem: Problem, budget_nbytes: int, windows: Iterable[Sequence[OpId]]
) -> Frame:
    """Return the frame of such a program with the recomputes of ``windows``, per stage."""
    hops = choose_hops(chain, windows)
    return _make_frame(chain, problem, budget_nbytes, hops, rounds_up=True)


def _make_frame(
    chain: Chain, problem: Problem, budget_nbytes: int, hops: Hops, *, rounds_up: bool = False
) -> Frame:
    graph = chain.graph
    forward = chain.find_forward(TensorId(e) for e in range(len(graph.tensors)))
    nbytes = [graph.tensors[e].nbytes for e in forward]
    room_nbytes = max(budget_nbytes - graph.resident_nbytes, 1)
    unit_nbytes = choose_unit(math.gcd(*nbytes), room_nbytes)
    scale = Scale(unit_nbytes, choose_power(room_nbytes // unit_nbytes), rounds_up)
    sizes = np.zeros(len(graph.tensors))
    sizes[forward] = [scale.convert(size) for size in nbytes]
    fixed, before = _find_fixed(chain, problem)
    columns = make_columns(chain, hops)
    return Frame(chain, problem, hops, columns, scale, sizes, budget_nbytes, fixed, before)


def _find_fixed(chain: Chain, problem: Problem) -> tuple[Nbytes, Nbytes]:
    """Return `Frame.fixed_nbytes` and `Frame.before_nbytes`.

    Those are the resident tensors, what backward ops made and is still to be read, the forward
    tensors that the last op of a stage reads or makes and, in the forward pass, what is still to
    be read there.
    """
    graph, n = chain.graph, len(chain.graph.ops)
    change = np.zeros(n + 1, dtype=np.int64)
    made = np.zeros(n, dtype=np.int64)
    for first, last, nbytes in _find_lives(chain):
        change[first] += nbytes
        change[last + 1] -= nbytes
        made[first] += nbytes
    live = graph.resident_nbytes + np.cumsum(change[:-1])
    before = live - made
    for s, stage in enumerate(chain.stages):
        held = (*chain.find_last_reads(s), *chain.find_last_makes(s))
        live[stage.last] += sum(graph.tensors[e].nbytes for e in held)
    return live + np.array(problem.costs.workspace_nbytes, dtype=np.int64), before


def _find_lives(chain: Chain) -> Iterator[tuple[int, int, int]]:
    """Yield the first and last op, and the bytes, of each tensor as far as they are fixed."""
    graph, readers = chain.graph, find_readers(chain.graph)
    for e, tensor in enumerate(graph.tensors):
        k = tensor.producer
        if k is None:
            continue
        if not chain.is_forward[k]:
            is_kept = e in graph.outputs
            yield k, len(graph.ops) - 1 if is_kept else max((k, *readers[e])), tensor.nbytes
        elif k < chain.n_forward:
            uses = (reader for reader in readers[e] if reader < chain.n_forward)
            yield k, max((k, *uses)), tensor.nbytes
