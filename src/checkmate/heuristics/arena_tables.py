"""An order of computes in the arena: where it is full, and what lies there then.

The same rules as `checkmate.arena`, which judges the result; here for orders of a folded problem,
many times over. A request that no chunk holds is noted and served from elsewhere, so that one
pass finds all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from checkmate.arena import N_RUNS, count_outside_nbytes
from checkmate.chunks import Arena
from checkmate.graph import Graph, OpId, TensorId
from checkmate.heuristics.tables import Tables, make_tables
from checkmate.placement import ArenaSetup
from checkmate.problem import Problem

FREE = TensorId(-1)
HELD = TensorId(-2)
"""Chunks without a tensor that could be freed: workspace and what is resident."""


@dataclass(frozen=True, slots=True)
class ArenaTables:
    """What it takes to run orders of one problem in its arena."""

    graph: Graph
    tables: Tables
    setup: ArenaSetup
    resident_nbytes: tuple[int, ...]
    """Resident tensors that lie in the arena."""
    in_place: tuple[TensorId, ...]
    """Per tensor: whose storage it takes over when that dies with the op; `FREE`: none."""
    n_blocks: tuple[int, ...]
    """Per op: the blocks that its workspace comes in before the outputs; 0: one, after them."""
    n_later: Mapping[OpId, int]
    """As in `checkmate.placement.ArenaRules`."""
    limit_nbytes: int
    live_limit_nbytes: int
    """The most of tensors and workspace, as `checkmate.simulate` counts them."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A stretch of the arena."""

    address: int
    nbytes: int
    tensor: TensorId


@dataclass(frozen=True, slots=True)
class Overflow:
    """A request that no chunk holds."""

    position: int
    """In the order."""
    nbytes: int
    chunks: tuple[Chunk, ...]
    """The arena at that moment, by address."""


@dataclass(frozen=True, slots=True)
class Filled:
    """What became of an order."""

    excess_nbytes: int
    """How much larger all overflows were than the largest chunk, and the peak than its limit."""
    overflow: Overflow | None
    """The first."""
    lacks: tuple[tuple[int, int], ...] = ()
    """Per overflow: its position, and the bytes by which it was larger than any chunk."""


def make_arena_tables(problem: Problem, budget_nbytes: int) -> ArenaTables:
    """Return the tables of ``problem``, which must have an arena and no views."""
    graph, rules = problem.graph, problem.arena
    assert rules is not None
    tables = make_tables(problem)
    return ArenaTables(
        graph,
        tables,
        rules.setup,
        tuple(graph.tensors[tensor].nbytes for tensor in rules.resident),
        tuple(rules.in_place.get(TensorId(i), FREE) for i in range(len(graph.tensors))),
        tuple(
            _count_blocks(tables, OpId(i)) if OpId(i) in rules.partial else 0
            for i in range(len(graph.ops))
        ),
        rules.n_later,
        budget_nbytes - count_outside_nbytes(graph, rules),
        budget_nbytes - graph.resident_nbytes,
    )


def _count_blocks(tables: Tables, op: OpId) -> int:
    """Return the blocks of the size of the output in which the workspace comes."""
    nbytes = tables.workspace_nbytes[op]
    size = max((tables.nbytes[made] for made in tables.makes[op]), default=0)
    return nbytes // size if size and nbytes % size == 0 else 1


def find_deaths(tables: Tables, order: Sequence[OpId]) -> list[list[TensorId]]:
    """Return, per position, the tensors that are freed there, as `insert_frees` does."""
    needed = [False] * len(tables.nbytes)
    for tensor in tables.outputs:
        needed[tensor] = True
    deaths: list[list[TensorId]] = []
    for op in reversed(order):
        dying: list[TensorId] = []
        for tensor in tables.makes[op]:
            if not needed[tensor]:
                dying.append(tensor)
            needed[tensor] = False
        for tensor in tables.reads[op]:
            if not needed[tensor]:
                dying.append(tensor)
                needed[tensor] = True
        deaths.append(dying)
    deaths.reverse()
    return deaths


def fill(tables: ArenaTables, order: Sequence[OpId], *, stops: bool = False) -> Filled:
    """Return what becomes of ``order``; with ``stops``, no further than where it does not fit."""
    filling = _Filling(tables)
    deaths = find_deaths(tables.tables, order)
    for _ in range(1 if tables.setup.region == "whole" else N_RUNS):
        for position, (op, dying) in enumerate(zip(order, deaths, strict=True)):
            filling.compute(position, op, dying)
            if stops and filling.is_over:
                return filling.conclude()
        filling.end_run()
    return filling.conclude()


class _Filling:
    """The arena during a run."""

    def __init__(self, tables: ArenaTables) -> None:
        self._all = tables
        self._tables = tables.tables
        self._arena = Arena(tables.setup, tables.limit_nbytes)
        self._owners: dict[int, TensorId] = {}
        self._address: dict[TensorId, int] = {}
        self._position = 0
        self._live_nbytes = self._peak_nbytes = self._lack_nbytes = 0
        self._lacks: list[tuple[int, int]] = []
        self._overflow: Overflow | None = None
        for nbytes in tables.resident_nbytes:
            self._allocate(nbytes, HELD)

    @property
    def is_over(self) -> bool:
        """Whether something did not fit."""
        return self._lack_nbytes > 0 or self._peak_nbytes > self._all.live_limit_nbytes

    def conclude(self) -> Filled:
        over_nbytes = max(0, self._peak_nbytes - self._all.live_limit_nbytes)
        return Filled(self._lack_nbytes + over_nbytes, self._overflow, tuple(self._lacks))

    def compute(self, position: int, op: OpId, dying: Sequence[TensorId]) -> None:
        tables, nbytes = self._tables, self._tables.nbytes
        self._position = position
        workspace_nbytes = tables.workspace_nbytes[op]
        n_before = self._all.n_blocks[op]
        blocks = [self._allocate(workspace_nbytes // n_before, HELD) for _ in range(n_before)]
        for _ in range(self._all.n_later.get(op, 0) if n_before else 0):
            blocks.append(self._allocate(workspace_nbytes // n_before, HELD))
            self._release(blocks.pop(0))
        for made in tables.makes[op]:
            self._live_nbytes += nbytes[made]
            self._make(made, dying)
        self._peak_nbytes = max(self._peak_nbytes, self._live_nbytes + workspace_nbytes)
        if not n_before:
            blocks.append(self._allocate(workspace_nbytes, HELD))
        for address in blocks:
            self._release(address)
        for tensor in dying:
            self._live_nbytes -= nbytes[tensor]
            self._release(self._address.pop(tensor, 0))

    def end_run(self) -> None:
        """Let go of the outputs."""
        for tensor, address in self._address.items():
            self._live_nbytes -= self._tables.nbytes[tensor]
            self._release(address)
        self._address.clear()

    def _make(self, made: TensorId, dying: Sequence[TensorId]) -> None:
        given = self._all.in_place[made]
        if given in dying and self._address.get(given, 0):
            self._address[made] = self._address.pop(given)
            if self._address[made] > 0:
                self._owners[self._address[made]] = made
        else:
            self._address[made] = self._allocate(self._tables.nbytes[made], made)

    def _allocate(self, nbytes: int, owner: TensorId) -> int:
        """Return an address; 0: no bytes, -1: it did not fit."""
        if not nbytes:
            return 0
        address = self._arena.allocate(nbytes)
        if address is None:
            self._note_overflow(nbytes)
            return -1
        self._owners[address] = owner
        return address

    def _note_overflow(self, nbytes: int) -> None:
        lack_nbytes = nbytes - self._arena.largest_free_nbytes
        self._lack_nbytes += lack_nbytes
        self._lacks.append((self._position, lack_nbytes))
        if self._overflow is None:
            chunks = (
                Chunk(address, size, self._owners[address] if is_used else FREE)
                for address, size, is_used in self._arena.list_chunks()
            )
            self._overflow = Overflow(self._position, nbytes, tuple(chunks))

    def _release(self, address: int) -> None:
        if address > 0:
            del self._owners[address]
            self._arena.release(address)
