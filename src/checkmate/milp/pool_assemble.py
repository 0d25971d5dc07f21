"""The program that chooses among the optional keys of a pool: the least time that fits.

Every solution fits in the budget: sizes are rounded up to units.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from checkmate.milp.assemble import Clock
from checkmate.milp.chain_frame import Scale
from checkmate.milp.frame import choose_power, choose_unit
from checkmate.milp.model import FloatArray, Program, Rows, Term
from checkmate.milp.pool import PRESENT, Choice, Pool, find_choice, find_orphans

_MOST_UNITS = 2**30
"""Finer than elsewhere: an order that fits to the byte is one to begin from, and hundreds of
tensors are rounded up at a time."""


def assemble_choice(pool: Pool, budget_nbytes: int, clock: Clock) -> tuple[Choice, Program]:
    """Return the columns of ``pool`` and its program; the first are those of the optional keys."""
    choice, rows = find_choice(pool), Rows()
    for column, others in choice.at_most:
        _add_at_most(rows, column, others)
    for keys in find_orphans(pool):
        rows.add([(choice.run[key], -1.0) for key in keys], -1.0)
    _MemoryRows(pool, choice, budget_nbytes).add(rows)
    time_ns = pool.problem.costs.time_ns
    cost, is_integer = np.zeros(choice.n_cols), np.zeros(choice.n_cols, dtype=np.bool_)
    for key, column in choice.run.items():
        cost[column] = time_ns[pool.find_op(key)] / clock.unit_ns
        is_integer[column] = True
    fixed_ns = sum(time_ns[pool.find_op(key)] for key in pool.keys if key not in pool.optional)
    return choice, Program(
        cost=cost,
        offset=fixed_ns / clock.unit_ns,
        lower=np.zeros(choice.n_cols),
        upper=np.ones(choice.n_cols),
        is_integer=is_integer,
        row_lower=np.full(len(rows.upper), -np.inf),
        row_upper=rows.upper,
        starts=rows.starts,
        indices=rows.indices,
        values=rows.values,
    )


def encode_choice(choice: Choice, chosen: Mapping[int, bool]) -> FloatArray:
    """Return the columns' values when the optional keys run that are ``chosen``."""
    values = np.zeros(choice.n_cols)
    for key, column in choice.run.items():
        values[column] = chosen[key]
    # Rows come in the order in which columns depend on others: each raises the one that it is
    # about to the least that it may be.
    for column, others in choice.at_most:
        if others:
            wanted = 1.0 if column == PRESENT else values[column]
            least = wanted - sum(values[other] for other in others[1:])
            values[others[0]] = max(values[others[0]], least)
    return values


def decode_choice(pool: Pool, choice: Choice, values: FloatArray) -> tuple[int, ...]:
    """Return the keys that run."""
    return tuple(key for key in pool.keys if key not in choice.run or values[choice.run[key]] > 0.5)


def _add_at_most(rows: Rows, column: int, others: tuple[int, ...]) -> None:
    terms = [(other, -1.0) for other in others]
    if column == PRESENT:
        rows.add(terms, -1.0)
    else:
        rows.add([(column, 1.0), *terms], 0.0)


class _MemoryRows:
    """The rows that what is in memory fits, at each key or at the worst of several."""

    def __init__(self, pool: Pool, choice: Choice, budget_nbytes: int) -> None:
        graph, workspaces = pool.problem.graph, pool.problem.costs.workspace_nbytes
        self._pool, self._choice = pool, choice
        room_nbytes = budget_nbytes - graph.resident_nbytes
        made = [tensor.nbytes for tensor in graph.tensors if tensor.producer is not None]
        unit_nbytes = choose_unit(math.gcd(*made, *workspaces), room_nbytes, _MOST_UNITS)
        self._scale = Scale(unit_nbytes, choose_power(room_nbytes // unit_nbytes), rounds_up=True)
        self._room = self._scale.convert_room(room_nbytes)
        self._sizes = [self._scale.convert(tensor.nbytes) for tensor in graph.tensors]

    def add(self, rows: Rows) -> None:
        """Add the rows; of neighbours with the same columns, the one with the least room."""
        certain, changes = self._sweep()
        active: dict[int, float] = {}
        most = 0.0
        for place, key in enumerate(self._pool.keys):
            own = self._find_own(key)
            run = self._choice.run.get(key)
            if run is not None or changes[place]:
                self._add_row(rows, active, most)
                most = 0.0
                _change(active, changes[place])
            if run is None:
                most = max(most, certain[place] + own)
            else:
                terms = active | {run: active.get(run, 0.0) + own}
                self._add_row(rows, terms, certain[place])
        self._add_row(rows, active, most)

    def _add_row(self, rows: Rows, terms: Mapping[int, float], certain: float) -> None:
        if certain + sum(terms.values()) > self._room:
            rows.add(terms.items(), self._room - certain)

    def _find_own(self, key: int) -> float:
        """Return what is in memory at ``key`` when it runs, beside what it reads and what waits."""
        op = self._pool.find_op(key)
        workspace = self._scale.convert(self._pool.problem.costs.workspace_nbytes[op])
        return workspace + sum(self._sizes[e] for e in self._pool.problem.graph.ops[op].outputs)

    def _sweep(self) -> tuple[FloatArray, list[list[Term]]]:
        """Return what is certainly in memory at each place, and how the columns change there."""
        steps = np.zeros(len(self._pool.keys) + 1)
        changes: list[list[Term]] = [[] for _ in steps]
        for stay in self._choice.stays:
            size = self._sizes[stay.e]
            if stay.column == PRESENT:
                steps[stay.first] += size
                steps[stay.last + 1] -= size
            elif size:
                changes[stay.first].append((stay.column, size))
                changes[stay.last + 1].append((stay.column, -size))
        return np.cumsum(steps), changes


def _change(active: dict[int, float], changes: list[Term]) -> None:
    for column, size in changes:
        active[column] = active.get(column, 0.0) + size
    for column, _ in changes:
        if not active.get(column):
            active.pop(column, None)
