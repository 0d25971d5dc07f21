"""What ops cost among the others, where caches hold what was made just before.

An op that runs alone, again and again, reads inputs that are always in a cache or, of several
copies, never. In a graph of small tensors most are, in one of large tensors none; only the graph
itself knows. Its runs without recompute say what each kind of op takes there.
"""

from __future__ import annotations

import hashlib
import json
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from checkmate.errors import RunError
from checkmate.graph import OpId
from checkmate.liveness import insert_frees
from checkmate.onnxio.digest import digest_model
from checkmate.onnxio.model import Model
from checkmate.onnxio.write import place_planned
from checkmate.problem import Problem
from checkmate.profiler.signature import Signature
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.execute import Watched, watch_model
from checkmate.runtime.protocol import Settings, WatchTask
from checkmate.runtime.worker import Worker
from checkmate.simulate import simulate
from checkmate.units import format_nbytes, format_ns

_MAX_SESSIONS = 3
_MAX_ROUNDS = 5
_MIN_ROUNDS = 3
_MAX_NS = 20_000_000_000
"""Ops of graphs that take longer are long themselves, and as long alone."""
_MAX_EVENTS = 200_000
"""In the profiles of all sessions."""
_N_SETS = 2
"""Of sessions: without a profile, and with one."""


@dataclass(frozen=True, slots=True)
class Means:
    """What there is to run a graph with."""

    worker: Worker
    settings: Settings
    memory_nbytes: int
    max_rounds: int


def time_among(
    model: Model, signatures: Sequence[Signature], problem: Problem, means: Means
) -> dict[Signature, int]:
    """Return what an op of each signature takes in the graph of ``model``, in ns, on average.

    The sum over all ops is the median of the runs. ``problem`` has the costs of the ops alone,
    which those ops keep, relative to the others, that the profile does not tell apart. Raises
    `RunError`, which says why, where the graph is not run.
    """
    n_sessions, n_rounds = _plan_runs(problem, means)
    specs = specify_inputs(model)
    task = WatchTask("", means.settings, specs, 0, n_sessions, n_rounds, _MAX_NS)
    with place_planned(model, is_named=True) as path:
        watched = watch_model(path, task, means.worker)
    if not watched.ops_ns:
        raise RunError(f"its first run took more than {format_ns(_MAX_NS)}")
    return share(model, signatures, problem, watched)


def name_graph(model: Model, signatures: Sequence[Signature]) -> dict[Signature, Signature]:
    """Return what to remember the ops of each signature by among those of ``model``."""
    known = json.dumps([digest_model(model), [signature.key for signature in signatures]])
    graph = hashlib.sha256(known.encode()).hexdigest()
    return {s: Signature(json.dumps({"graph": graph, "op": s.key})) for s in signatures}


def _plan_runs(problem: Problem, means: Means) -> tuple[int, int]:
    """Return how many sessions run how often; raise `RunError` where that is not to be done."""
    if means.settings.provider != "cpu":
        raise RunError("a profile on CUDA times launches, not kernels")
    n_ops = len(problem.graph.ops)
    order = tuple(OpId(op) for op in range(n_ops))
    needed_nbytes = simulate(problem, insert_frees(problem.graph, order)).peak.nbytes
    if needed_nbytes > means.memory_nbytes:
        raise RunError(
            f"it needs {format_nbytes(needed_nbytes)}, and there are"
            f" {format_nbytes(means.memory_nbytes)}"
        )
    n_runs = min(
        _MAX_NS // (_N_SETS * max(1, problem.costs.total_ns)), _MAX_EVENTS // max(1, n_ops)
    )
    if n_runs < _MIN_ROUNDS:
        raise RunError(f"{_MIN_ROUNDS} runs of {n_ops} ops would take too long")
    n_held = means.memory_nbytes // max(1, needed_nbytes)
    n_sessions = min(_MAX_SESSIONS, n_held, n_runs // _MIN_ROUNDS)
    return n_sessions, min(means.max_rounds, _MAX_ROUNDS, n_runs // n_sessions)


def share(
    model: Model, signatures: Sequence[Signature], problem: Problem, watched: Watched
) -> dict[Signature, int]:
    """Share the median of the times of the runs out among the ops."""
    names = [op.name for op in model.graph.ops]
    ops_ns = [watched.ops_ns.get(name) for name in names]
    seen = [n for n, ns in enumerate(ops_ns) if ns is not None]
    seen_ns = sum(ns for ns in ops_ns if ns is not None)
    alone_ns = problem.costs.time_ns
    seen_alone_ns = max(1, sum(alone_ns[n] for n in seen))
    parts: dict[Signature, list[int]] = defaultdict(list)
    for signature, own_ns, own_alone_ns in zip(signatures, ops_ns, alone_ns, strict=True):
        guess_ns = own_alone_ns * seen_ns // seen_alone_ns
        parts[signature].append(guess_ns if own_ns is None else own_ns)
    total_ns = max(1, sum(map(sum, parts.values())))
    whole_ns = statistics.median_low(watched.times_ns)
    return {
        signature: max(1, sum(own) * whole_ns // (len(own) * total_ns))
        for signature, own in parts.items()
    }
