"""What a schedule takes of onnxruntime's arena, which is what a memory limit limits.

An op gets its outputs, then its workspace, while its inputs are there; where the workspace is
partial results, it comes before the output and in blocks of that size. An output may take over
the storage of an input that dies with the op. Tensors without bytes take nothing. What the run
leaves, its outputs, the caller lets go before the next run, which meets the arena as this one
left it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from checkmate.chunks import Arena
from checkmate.graph import Graph, OpId, TensorId
from checkmate.placement import CHUNK_NBYTES, ArenaRules
from checkmate.problem import Problem
from checkmate.schedule import Free, Schedule
from checkmate.simulate import simulate

N_RUNS = 3
"""With regions of many sizes, a later run may need more than the first."""

_OUTSIDE = -1
"""The storage of what does not lie in the arena."""


@dataclass(frozen=True, slots=True)
class ArenaPeak:
    """What an arena needs for a schedule."""

    reserved_nbytes: int
    """The smallest limit found to work."""
    live_nbytes: int
    """The most that is asked for at once."""

    @property
    def fragmentation_nbytes(self) -> int:
        """What rounding and the gaps between chunks add."""
        return self.reserved_nbytes - self.live_nbytes


def find_arena_peak(problem: Problem, schedule: Schedule, rules: ArenaRules) -> ArenaPeak:
    """Return what ``schedule``, which must be able to run, needs in `N_RUNS` runs in a row."""
    requests = _list_requests(problem, schedule, rules)
    live_nbytes = _find_live(requests)
    if rules.setup.region == "exact":
        # A limit forbids growth and changes nothing before: what there is without one, it takes.
        return ArenaPeak(_fill(requests, rules, 2**62) or 0, live_nbytes)
    n_chunks = _bisect(-(-live_nbytes // CHUNK_NBYTES), requests, rules)
    return ArenaPeak(n_chunks * CHUNK_NBYTES, live_nbytes)


def _bisect(start: int, requests: _Requests, rules: ArenaRules) -> int:
    """Return a number of chunks that works while one less by a few thousandths does not."""
    low, high = start - 1, start
    while _fill(requests, rules, high * CHUNK_NBYTES) is None:
        low, high = high, high + high // 4 + 1
    while high - low > 1 + high // 4096:
        middle = (low + high) // 2
        if _fill(requests, rules, middle * CHUNK_NBYTES) is None:
            low = middle
        else:
            high = middle
    return high


def fits_arena(problem: Problem, schedule: Schedule, rules: ArenaRules, limit_nbytes: int) -> bool:
    """Return whether `N_RUNS` runs in a row work in an arena of at most ``limit_nbytes``.

    A limit a little above one that works may fail: other chunks are free then.
    """
    return _fill(_list_requests(problem, schedule, rules), rules, limit_nbytes) is not None


def count_budget_nbytes(problem: Problem, schedule: Schedule) -> int:
    """Return the smallest budget found in which ``schedule`` runs.

    In the arena of ``problem`` and beside what lies outside of it; in bytes where it has none.
    """
    if problem.arena is None:
        return simulate(problem, schedule).peak.nbytes
    outside_nbytes = count_outside_nbytes(problem.graph, problem.arena)
    return outside_nbytes + find_arena_peak(problem, schedule, problem.arena).reserved_nbytes


def is_within(problem: Problem, schedule: Schedule, budget_nbytes: int) -> bool:
    """Return whether ``schedule`` runs in ``budget_nbytes``, and in the arena that they leave."""
    if simulate(problem, schedule).peak.nbytes > budget_nbytes:
        return False
    if problem.arena is None:
        return True
    limit_nbytes = budget_nbytes - count_outside_nbytes(problem.graph, problem.arena)
    return fits_arena(problem, schedule, problem.arena, limit_nbytes)


def count_outside_nbytes(graph: Graph, rules: ArenaRules) -> int:
    """Return the bytes of the resident tensors that lie outside of the arena."""
    return graph.resident_nbytes - sum(graph.tensors[tensor].nbytes for tensor in rules.resident)


@dataclass(frozen=True, slots=True)
class _Requests:
    """Requests by block; above zero bytes: allocate it; 0: release it."""

    before: tuple[tuple[int, int], ...]
    """When the session is made."""
    run: tuple[tuple[int, int], ...]
    """In every run."""


def _fill(requests: _Requests, rules: ArenaRules, limit_nbytes: int) -> int | None:
    """Return what an arena holds after all runs; None: a request exceeded the limit."""
    arena = Arena(rules.setup, limit_nbytes)
    addresses: dict[int, int] = {}
    # One region is a single free chunk again after each run, so that all runs are alike.
    n_runs = 1 if rules.setup.region == "whole" else N_RUNS
    for block, nbytes in (*requests.before, *requests.run * n_runs):
        if nbytes:
            address = arena.allocate(nbytes)
            if address is None:
                return None
            addresses[block] = address
        else:
            arena.release(addresses.pop(block))
    return arena.reserved_nbytes


def _find_live(requests: _Requests) -> int:
    live = peak = 0
    sizes: dict[int, int] = {}
    for block, nbytes in (*requests.before, *requests.run):
        live += nbytes - (0 if nbytes else sizes[block])
        sizes[block] = nbytes
        peak = max(peak, live)
    return peak


def _list_requests(problem: Problem, schedule: Schedule, rules: ArenaRules) -> _Requests:
    asker = _Asker(problem, rules)
    before = tuple(asker.requests)
    for step, dying in _group(schedule):
        asker.compute(step, dying)
        for tensor in dying:
            asker.free(tensor)
    for tensor in problem.graph.outputs:
        asker.free(tensor)
    return _Requests(before, tuple(asker.requests[len(before) :]))


def _group(schedule: Schedule) -> Iterator[tuple[OpId, tuple[TensorId, ...]]]:
    """Yield each compute with the tensors that are freed before the next."""
    op: OpId | None = None
    dying: list[TensorId] = []
    for step in (*schedule.instructions, None):
        if isinstance(step, Free):
            dying.append(step.tensor)
            continue
        if op is not None:
            yield op, tuple(dying)
        op, dying = (None if step is None else step.op), []


class _Asker:
    """Turns computes and frees into requests; knows which tensors hold which block."""

    def __init__(self, problem: Problem, rules: ArenaRules) -> None:
        self._graph = problem.graph
        self._workspace_nbytes = problem.costs.workspace_nbytes
        self._rules = rules
        self._block: dict[TensorId, int] = {}
        self._holders: dict[int, set[TensorId]] = {_OUTSIDE: set()}
        self._n_blocks = 0
        self.requests: list[tuple[int, int]] = []
        for index, tensor in enumerate(self._graph.tensors):
            if tensor.producer is None:
                self._block[TensorId(index)] = _OUTSIDE
        for held in rules.resident:
            self._allocate(self._graph.tensors[held].nbytes)

    def compute(self, op_id: OpId, dying: Sequence[TensorId]) -> None:
        outputs = self._graph.ops[op_id].outputs
        nbytes = self._workspace_nbytes[op_id]
        workspace: list[int] = []
        if op_id in self._rules.partial:
            size = max((self._graph.tensors[output].nbytes for output in outputs), default=0)
            workspace += map(self._allocate, _split(nbytes, size))
            nbytes = 0
            for _ in range(self._rules.n_later.get(op_id, 0) if workspace else 0):
                workspace.append(self._allocate(size))
                self._release(workspace.pop(0))
        for output in outputs:
            self._make(output, dying)
        workspace.append(self._allocate(nbytes))
        for block in workspace:
            self._release(block)

    def free(self, tensor: TensorId) -> None:
        block = self._block.pop(tensor, _OUTSIDE)
        holders = self._holders.get(block, set())
        holders.discard(tensor)
        if block != _OUTSIDE and not holders:
            self._release(block)

    def _make(self, output: TensorId, dying: Sequence[TensorId]) -> None:
        tensor = self._graph.tensors[output]
        given = self._rules.in_place.get(output)
        if tensor.source is not None:
            block = self._block[tensor.source]
        elif given is not None and self._dies(given, dying):
            block = self._block[given]
        else:
            block = self._allocate(tensor.nbytes)
        self._block[output] = block
        self._holders[block].add(output)

    def _dies(self, tensor: TensorId, dying: Sequence[TensorId]) -> bool:
        """Return whether nothing holds the storage of ``tensor`` when the op is done."""
        block = self._block[tensor]
        return block != _OUTSIDE and self._holders[block].issubset(dying)

    def _allocate(self, nbytes: int) -> int:
        if nbytes == 0:
            return _OUTSIDE
        self._n_blocks += 1
        self._holders[self._n_blocks] = set()
        self.requests.append((self._n_blocks, nbytes))
        return self._n_blocks

    def _release(self, block: int) -> None:
        if block != _OUTSIDE:
            self.requests.append((block, 0))


def _split(nbytes: int, size: int) -> tuple[int, ...]:
    """Return ``nbytes`` in blocks of ``size``; in one when they are no multiple of it."""
    is_multiple = size > 0 and nbytes % size == 0
    return (size,) * (nbytes // size) if is_multiple else (nbytes,)
