"""What one op costs, by running it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import onnx

from checkmate.errors import OutOfMemoryError, RunError
from checkmate.profiler.cache import OpCost
from checkmate.profiler.flops import PROCESSOR, count_traffic_nbytes, estimate_op_ns
from checkmate.profiler.one_op import build_one_op
from checkmate.profiler.surroundings import Surroundings
from checkmate.runtime.protocol import Reply, Settings, TimeTask, read_ints
from checkmate.runtime.worker import Worker
from checkmate.units import format_nbytes

_N_COPIES = 4
"""Enough that none finds its inputs in the cache from the run before, and that what a run costs
beside its ops is spread thin."""

_LONG_NS = 20_000_000
"""An op that is expected to take longer reads more than any cache holds, and waits for nothing
else: one copy says as much as four."""


_SHORT_NS = 200_000
"""On the CPU, what a run costs by itself is more than a percent of a shorter one."""


_NOISE_SHARE = 8 * _N_COPIES
"""No op costs less than an eighth of its share of a run, though a difference of two may be less."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure."""

    settings: Settings = field(default_factory=Settings)
    memory_nbytes: int = 2**62
    """The most that an op and its copies may take."""
    max_runs: int = 50
    max_ns: int = 100_000_000
    """Per signature, after warming up; one run is always timed."""
    seed: int = 0


def measure_op(
    node: onnx.NodeProto, around: Surroundings, worker: Worker, effort: Effort
) -> OpCost:
    """Return what ``node`` costs, from the fastest of several runs.

    The fastest, not the median: a run is only ever slowed by what is not the op, and the sum over
    the ops of a graph came closer to the measured whole. Raises `OutOfMemoryError` before
    anything is run when the tensors of the op do not fit, and `RunError` for an op that cannot
    run on its own.
    """
    traffic_nbytes = count_traffic_nbytes(node, around)
    if traffic_nbytes > effort.memory_nbytes:
        raise OutOfMemoryError(
            f"the tensors of op {node.name!r} ({node.op_type}) take"
            f" {format_nbytes(traffic_nbytes)}, and there are {format_nbytes(effort.memory_nbytes)}"
        )
    is_long = (
        effort.settings.provider == "cpu" and estimate_op_ns(node, around, PROCESSOR) > _LONG_NS
    )
    is_large = _N_COPIES * traffic_nbytes > effort.memory_nbytes
    n_copies = 1 if is_long or is_large else _N_COPIES
    reply = _time_copies(node, around, n_copies, worker, effort)
    time_ns = min(read_ints(reply, "times_ns"))
    workspace_nbytes = reply["workspace_nbytes"]
    assert isinstance(workspace_nbytes, int)
    is_short = effort.settings.provider == "cuda" or time_ns < _SHORT_NS
    if is_short and n_copies > 1:
        # A run costs something by itself, on CUDA the wait for the device: as much as a small op.
        # The difference of two runs does not have it.
        single = _time_copies(node, around, 1, worker, effort)
        single_ns = min(read_ints(single, "times_ns"))
        difference_ns = (time_ns - single_ns) // (n_copies - 1)
        return OpCost(max(difference_ns, time_ns // _NOISE_SHARE), workspace_nbytes)
    return OpCost(time_ns // n_copies, workspace_nbytes)


def _time_copies(
    node: onnx.NodeProto, around: Surroundings, n_copies: int, worker: Worker, effort: Effort
) -> Reply:
    model = build_one_op(node, around, n_copies)
    path: Path = worker.folder / "one_op.onnx"
    path.write_bytes(model.proto.SerializeToString())
    task = TimeTask(
        str(path),
        effort.settings,
        model.inputs,
        model.outputs,
        effort.seed,
        effort.max_runs,
        effort.max_ns,
        workspace_by="allocator",
    )
    try:
        return worker.ask(task)
    except RunError as error:
        who = f"op {node.name!r} ({node.op_type})"
        raise type(error)(f"{who}: {error.message}", hint=error.hint) from error
