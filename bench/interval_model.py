"""Rematerialization as retention intervals, for the CP-SAT solver of or-tools.

After Bartan et al., "Moccasin: Efficient Tensor Rematerialization for Neural Networks" (ICML 2023):
every op has a first compute and optional copies; every tensor of a compute is retained over an
interval; a reader needs one interval of each input that covers it; all intervals together stay
below the budget. Computes start at the events of the staged order, stage s being the events
s (s + 1) / 2 .. s (s + 1) / 2 + s, so that the space is that of frontier-advancing schedules with
at most ``n_copies`` computes an op. As there, the model is solved twice: first what the order
without recompute exceeds the budget by is brought down, then time, from what was found to fit.
Only `bench/versus.py` uses this; it needs or-tools.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise

from ortools.sat.python import cp_model

from checkmate.graph import OpId, TensorId, find_readers
from checkmate.problem import Problem

_MOST_UNITS = 2**40
"""Bytes are counted in units so that sums stay far inside of 64 bits."""


@dataclass(frozen=True, slots=True)
class Effort:
    """What the solver may take."""

    time_s: float
    n_workers: int = 1
    n_copies: int = 2
    """The most computes of one op; 2 in the paper's experiments."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the solver found."""

    order: tuple[OpId, ...] | None
    """Computes in the order in which they run; None: no solution."""
    bound_ns: float
    """Proven for schedules with at most ``n_copies`` computes an op."""
    status: str


def solve_intervals(problem: Problem, budget_nbytes: int, effort: Effort) -> Answer:
    """Return the cheapest schedule that CP-SAT finds within the budget."""
    began_s = time.monotonic()
    model = _Model(problem, budget_nbytes, effort.n_copies)
    status, solver = _solve(model, effort, began_s)
    if solver is None or solver.value(model.excess):
        return Answer(None, 0.0, f"{status} in excess of the budget")
    model.ask_for_time(solver)
    status, solver = _solve(model, effort, began_s)
    if solver is None:
        return Answer(None, 0.0, status)
    bound_ns = problem.costs.total_ns + solver.best_objective_bound
    return Answer(model.read_order(solver), bound_ns, status)


def _solve(model: _Model, effort: Effort, began_s: float) -> tuple[str, cp_model.CpSolver | None]:
    """Return the status, and the solver that holds the solution, if there is one."""
    solver = cp_model.CpSolver()
    left_s = effort.time_s - (time.monotonic() - began_s)
    solver.parameters.max_time_in_seconds = max(left_s, 0.1)
    solver.parameters.num_workers = effort.n_workers
    status = solver.solve(model.program)
    is_solved = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    return solver.status_name(status), solver if is_solved else None


@dataclass(frozen=True, slots=True)
class _Compute:
    """One possible run of an op."""

    op: OpId
    start: cp_model.IntVar
    is_active: cp_model.IntVar | bool
    """True for the first compute, which always happens."""
    ends: dict[TensorId, cp_model.IntVar]
    """Per output, the last event at which it is retained."""


class _Model:
    """The variables and constraints of one problem."""

    def __init__(self, problem: Problem, budget_nbytes: int, n_copies: int) -> None:
        self._problem, self._n_ops = problem, len(problem.graph.ops)
        readers = find_readers(problem.graph)
        self._last_readers = [max(of_tensor, default=-1) for of_tensor in readers]
        self.program = cp_model.CpModel()
        self._intervals: list[cp_model.IntervalVar] = []
        self._demands: list[int] = []
        self._computes = [self._add_op(OpId(op), n_copies) for op in range(self._n_ops)]
        for computes in self._computes:
            for compute in computes:
                self._need_inputs(compute)
        self._keep_outputs()
        room = self._count_units(budget_nbytes - problem.graph.resident_nbytes)
        most = max(0, sum(self._demands) - room)
        self.excess = self.program.new_int_var(0, most, "excess")
        self.program.add_cumulative(self._intervals, self._demands, room + self.excess)
        self._hint(self.excess, most)
        self.program.minimize(self.excess)

    def ask_for_time(self, solver: cp_model.CpSolver) -> None:
        """Go on to the least time within the budget, from the solution of ``solver``."""
        self.program.clear_hints()
        for index in range(len(self.program.proto.variables)):
            variable = self.program.get_int_var_from_proto_index(index)
            self.program.add_hint(variable, solver.value(variable))
        self.program.add(self.excess == 0)
        self.program.minimize(
            sum(
                int(self._problem.costs.time_ns[compute.op]) * compute.is_active
                for computes in self._computes
                for compute in computes[1:]
            )
        )

    def read_order(self, solver: cp_model.CpSolver) -> tuple[OpId, ...]:
        """Return the computes of the solution by their events."""
        ran = [
            (solver.value(compute.start), compute.op)
            for computes in self._computes
            for compute in computes
            if compute.is_active is True or solver.value(compute.is_active)
        ]
        return tuple(op for _, op in sorted(ran))

    @property
    def _last_event(self) -> int:
        return self._n_ops * (self._n_ops + 1) // 2 - 1

    def _hint(self, variable: cp_model.IntVar, value: int) -> None:
        """Let the search begin from every op once, each tensor retained up to its last reader."""
        self.program.add_hint(variable, value)

    def _add_op(self, op: OpId, n_copies: int) -> list[_Compute]:
        """Add the first compute of an op, in its own stage, and copies in later stages."""
        first = self._add_compute(op, [_find_event(op, op)], is_first=True)
        later = [_find_event(stage, op) for stage in range(op + 1, self._n_ops)]
        has_copies = later and self._problem.graph.ops[op].recomputable
        n_more = n_copies - 1 if has_copies else 0
        computes = [first, *(self._add_compute(op, later, is_first=False) for _ in range(n_more))]
        for before, after in pairwise(computes[1:]):
            self.program.add_implication(after.is_active, before.is_active)
            self.program.add(before.start < after.start).only_enforce_if(after.is_active)
        return computes

    def _add_compute(self, op: OpId, events: list[int], *, is_first: bool) -> _Compute:
        program = self.program
        start = program.new_int_var_from_domain(cp_model.Domain.from_values(events), f"start{op}")
        self._hint(start, events[0])
        is_active = True if is_first else self._add_bool(f"active{op}", hint=False)
        ends: dict[TensorId, cp_model.IntVar] = {}
        for tensor in self._problem.graph.ops[op].outputs:
            end = program.new_int_var(min(events), self._last_event, f"end{tensor}")
            ends[tensor] = end
            last = self._find_last_event(tensor) if is_first else -1
            self._hint(end, max(last, events[0]))
            nbytes = self._problem.graph.tensors[tensor].nbytes
            length = program.new_int_var(1, self._last_event + 1, f"length{tensor}")
            self._hint(length, max(last, events[0]) - events[0] + 1)
            self._occupy(start, length, end + 1, is_active, nbytes)
        workspace_nbytes = self._problem.costs.workspace_nbytes[op]
        if workspace_nbytes:
            self._occupy(start, 1, start + 1, is_active, workspace_nbytes)
        return _Compute(op, start, is_active, ends)

    def _find_last_event(self, tensor: TensorId) -> int:
        """Return up to which event a tensor is in memory when every op runs once."""
        if tensor in self._problem.graph.outputs:
            return self._last_event
        return _find_event(self._last_readers[tensor], self._last_readers[tensor])

    def _add_bool(self, name: str, *, hint: bool) -> cp_model.IntVar:
        variable = self.program.new_bool_var(name)
        self._hint(variable, hint)
        return variable

    def _occupy(
        self,
        start: cp_model.IntVar,
        length: cp_model.IntVar | int,
        end: cp_model.LinearExpr,
        is_active: cp_model.IntVar | bool,
        nbytes: int,
    ) -> None:
        make = self.program.new_optional_interval_var
        self._intervals.append(make(start, length, end, is_active, "interval"))
        self._demands.append(-(-nbytes // self._unit_nbytes))

    def _need_inputs(self, reader: _Compute) -> None:
        """Let one retained interval of every input cover the start of ``reader``."""
        for tensor in self._problem.graph.ops[reader.op].inputs:
            producer = self._problem.graph.tensors[tensor].producer
            if producer is None:
                continue
            covers = [self._cover(reader, tensor, c) for c in self._computes[producer]]
            needed = self.program.add_bool_or(covers)
            if reader.is_active is not True:
                needed.only_enforce_if(reader.is_active)

    def _cover(self, reader: _Compute, tensor: TensorId, maker: _Compute) -> cp_model.IntVar:
        are_first = reader.is_active is True and maker.is_active is True
        is_covered = self._add_bool("covers", hint=are_first)
        self.program.add(maker.start < reader.start).only_enforce_if(is_covered)
        self.program.add(maker.ends[tensor] >= reader.start).only_enforce_if(is_covered)
        if maker.is_active is not True:
            self.program.add_implication(is_covered, maker.is_active)
        return is_covered

    def _keep_outputs(self) -> None:
        for tensor in self._problem.graph.outputs:
            producer = self._problem.graph.tensors[tensor].producer
            if producer is None:
                continue
            kept = []
            for maker in self._computes[producer]:
                is_kept = self._add_bool("kept", hint=maker.is_active is True)
                self.program.add(maker.ends[tensor] == self._last_event).only_enforce_if(is_kept)
                if maker.is_active is not True:
                    self.program.add_implication(is_kept, maker.is_active)
                kept.append(is_kept)
            self.program.add_bool_or(kept)

    @property
    def _unit_nbytes(self) -> int:
        total_nbytes = sum(tensor.nbytes for tensor in self._problem.graph.tensors)
        return max(1, total_nbytes // _MOST_UNITS)

    def _count_units(self, nbytes: int) -> int:
        return max(0, nbytes // self._unit_nbytes)


def _find_event(stage: int, op: int) -> int:
    return stage * (stage + 1) // 2 + op
