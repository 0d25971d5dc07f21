"""Computes of which some may be left out, and what that leaves to decide.

A compute is named by its *key*, ``stage * n + op``: ascending keys are the order in which the
computes run, as in the local search. The *events* of a tensor are the keys of the pool at which it
is made or read, ascending. What is decided is which of the *optional* keys run; the others run in
any case. `docs/strategies.md` says what the search does with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from checkmate.graph import OpId, TensorId
from checkmate.problem import Problem

ABSENT, PRESENT = -2, -1
"""In place of a column: the tensor is certainly not, or certainly is, in memory."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Keys of a problem without views."""

    problem: Problem
    keys: tuple[int, ...]
    """Ascending. Each op has one at least, and every input of a key is made at an earlier one."""
    optional: frozenset[int]

    @property
    def n_ops(self) -> int:
        """How many ops there are."""
        return len(self.problem.graph.ops)

    def find_op(self, key: int) -> OpId:
        """Return the op that runs at ``key``."""
        return OpId(key % self.n_ops)

    def find_events(self) -> list[list[int]]:
        """Return, per tensor, the places in ``keys`` where it is made or read, ascending."""
        graph = self.problem.graph
        events: list[list[int]] = [[] for _ in graph.tensors]
        for place, key in enumerate(self.keys):
            op = graph.ops[self.find_op(key)]
            for e in dict.fromkeys((*op.inputs, *op.outputs)):
                if graph.tensors[e].producer is not None:
                    events[e].append(place)
        return events


@dataclass(frozen=True, slots=True)
class Stay:
    """A tensor between two of its events, or after the last one."""

    e: TensorId
    first: int
    """The place in the keys from which on ``column`` counts."""
    last: int
    """The last place where it does."""
    column: int
    """1 when the tensor is in memory; `PRESENT` where it certainly is."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The columns of a pool, and what must hold between them."""

    run: dict[int, int]
    """Column of each optional key: 1 when it runs."""
    stays: tuple[Stay, ...]
    """Of tensors that may be in memory."""
    at_most: tuple[tuple[int, tuple[int, ...]], ...]
    """Columns, and others that each is at most the sum of; `PRESENT` stands for 1."""
    n_cols: int


def find_choice(pool: Pool) -> Choice:
    """Return the columns of ``pool``.

    A tensor is in memory up to an event when something reads it from there on before it is made
    again. Where the fixed keys say so or the reverse, there is no column.
    """
    draft = _Draft(pool)
    for e, events in enumerate(pool.find_events()):
        if events:
            draft.add_tensor(TensorId(e), events)
    return Choice(draft.run, tuple(draft.stays), tuple(draft.at_most), draft.n_cols)


class _Draft:
    """Columns in the making."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._outputs = frozenset(pool.problem.graph.outputs)
        self.run = {key: column for column, key in enumerate(sorted(pool.optional))}
        self.n_cols = len(self.run)
        self.stays: list[Stay] = []
        self.at_most: list[tuple[int, tuple[int, ...]]] = []

    def add_tensor(self, e: TensorId, events: list[int]) -> None:
        """Add the columns of ``e``, from the end to the beginning."""
        producer = self._pool.problem.graph.tensors[e].producer
        later = PRESENT if e in self._outputs else ABSENT
        place_after = len(self._pool.keys)
        for place in reversed(events):
            self._add_stay(e, place + 1, place_after, later)
            key = self._pool.keys[place]
            run = self.run.get(key, PRESENT)
            is_make = self._pool.find_op(key) == producer
            later = self._pass_make(run, later) if is_make else self._pass_read(run, later)
            place_after = place
        if later != ABSENT:  # nothing made it yet
            self.at_most.append((later, ()))

    def _add_stay(self, e: TensorId, first: int, last: int, column: int) -> None:
        """Note that ``column`` says whether ``e`` is in memory from ``first`` to ``last``."""
        if column != ABSENT:
            last = min(last, len(self._pool.keys) - 1)
            if first <= last:
                self.stays.append(Stay(e, first, last, column))

    def _pass_make(self, run: int, later: int) -> int:
        """Return the column before an event that makes a tensor when the column ``run`` is 1."""
        if run == PRESENT or later == ABSENT:
            return ABSENT
        column = self._add()
        self.at_most.append((later, (column, run)))
        return column

    def _pass_read(self, run: int, later: int) -> int:
        """Return the column before an event that reads a tensor when the column ``run`` is 1."""
        if PRESENT in (run, later):
            return PRESENT
        if later == ABSENT:
            return run
        column = self._add()
        self.at_most += [(run, (column,)), (later, (column,))]
        return column

    def _add(self) -> int:
        self.n_cols += 1
        return self.n_cols - 1


def find_orphans(pool: Pool) -> Iterable[list[int]]:
    """Return the keys of each op all of whose keys are optional: one of them must run."""
    ways: dict[OpId, list[int]] = {}
    for key in pool.keys:
        ways.setdefault(pool.find_op(key), []).append(key)
    return [keys for keys in ways.values() if pool.optional.issuperset(keys)]
