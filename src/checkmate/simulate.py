"""The judge: what a schedule would do, instruction by instruction.

Rules (each has a test written by hand):

1. Resident tensors are in memory throughout and cannot be freed.
2. An op reads only what is in memory.
3. An op makes all of its outputs, none of which may be in memory already.
4. While an op runs, its inputs, its outputs and its workspace are in memory.
5. A view holds the storage that its source had when the view was made; storage leaves memory
   when neither its owner nor any view holds it.
6. A tensor is freed once per compute; freeing what is not in memory is an error.
7. Every op is computed at least once; an op that is not recomputable, exactly once.
8. Graph outputs are in memory at the end.

This file shares no code with any search.
"""

from __future__ import annotations

from dataclasses import dataclass

from checkmate.errors import ScheduleError
from checkmate.graph import Graph, OpId, TensorId
from checkmate.problem import Problem
from checkmate.schedule import Compute, Schedule


@dataclass(frozen=True, slots=True)
class Peak:
    """The instruction that uses the most memory, and what fills it."""

    op: OpId | None
    """The op that runs then; None: no op needs more than what is resident."""
    resident_nbytes: int
    live_nbytes: int
    """Tensors in memory beside the resident ones, the op's inputs and outputs included."""
    workspace_nbytes: int

    @property
    def nbytes(self) -> int:
        """All of it."""
        return self.resident_nbytes + self.live_nbytes + self.workspace_nbytes


@dataclass(frozen=True, slots=True)
class Simulation:
    """What a schedule does when it runs."""

    used_nbytes: tuple[int, ...]
    """Per instruction: memory in use while it runs; a free takes effect after itself."""
    peak: Peak
    time_ns: int


def simulate(problem: Problem, schedule: Schedule) -> Simulation:
    """Run ``schedule`` and return its memory and time.

    Raises `ScheduleError`, naming the op and the tensor, when it breaks a rule of this file.
    """
    machine = _Machine(problem.graph)
    costs = problem.costs
    used: list[int] = []
    time_ns = 0
    peak = Peak(None, machine.resident_nbytes, 0, 0)
    for step in schedule.instructions:
        workspace_nbytes = 0
        if isinstance(step, Compute):
            machine.compute(step.op)
            workspace_nbytes = costs.workspace_nbytes[step.op]
            time_ns += costs.time_ns[step.op]
            now = Peak(step.op, machine.resident_nbytes, machine.live_nbytes, workspace_nbytes)
            peak = now if now.nbytes > peak.nbytes else peak
        used.append(machine.resident_nbytes + machine.live_nbytes + workspace_nbytes)
        if not isinstance(step, Compute):
            machine.free(step.tensor)
    machine.finish()
    return Simulation(tuple(used), peak, time_ns)


class _Machine:
    """Memory as a run sees it: which storage each tensor holds, and how many hold it."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._storage: dict[TensorId, int] = {}
        self._holders: list[int] = []
        self._nbytes: list[int] = []
        self._n_computes = [0] * len(graph.ops)
        self.live_nbytes = 0
        self.resident_nbytes = graph.resident_nbytes
        for index, tensor in enumerate(graph.tensors):
            if tensor.producer is None:
                self._hold(TensorId(index), self._allocate(0))

    def compute(self, op_id: OpId) -> None:
        op = self._graph.ops[op_id]
        for tensor in op.inputs:
            if tensor not in self._storage:
                raise ScheduleError(f"op {op.name!r} reads {self._name(tensor)}, not in memory")
        self._n_computes[op_id] += 1
        if self._n_computes[op_id] > 1 and not op.recomputable:
            raise ScheduleError(f"op {op.name!r} is computed twice but may run only once")
        for tensor in op.outputs:
            if tensor in self._storage:
                raise ScheduleError(f"op {op.name!r} makes {self._name(tensor)}, still in memory")
            source = self._graph.tensors[tensor].source
            own = self._graph.tensors[tensor].nbytes
            self._hold(tensor, self._allocate(own) if source is None else self._storage[source])

    def free(self, tensor: TensorId) -> None:
        if self._graph.tensors[tensor].producer is None:
            raise ScheduleError(f"{self._name(tensor)} is freed but is resident")
        if tensor not in self._storage:
            raise ScheduleError(f"{self._name(tensor)} is freed but is not in memory")
        storage = self._storage.pop(tensor)
        self._holders[storage] -= 1
        if self._holders[storage] == 0:
            self.live_nbytes -= self._nbytes[storage]

    def finish(self) -> None:
        for op, count in zip(self._graph.ops, self._n_computes, strict=True):
            if count == 0:
                raise ScheduleError(f"op {op.name!r} is never computed")
        for tensor in self._graph.outputs:
            if tensor not in self._storage:
                raise ScheduleError(
                    f"graph output {self._name(tensor)} is not in memory at the end"
                )

    def _allocate(self, nbytes: int) -> int:
        self._nbytes.append(nbytes)
        self._holders.append(0)
        self.live_nbytes += nbytes
        return len(self._nbytes) - 1

    def _hold(self, tensor: TensorId, storage: int) -> None:
        self._storage[tensor] = storage
        self._holders[storage] += 1

    def _name(self, tensor: TensorId) -> str:
        return f"tensor {self._graph.tensors[tensor].name!r}"
