"""What every op of a model costs on one device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import onnx

from checkmate.costs import Costs, Origin
from checkmate.errors import InputError, OutputError, RunError
from checkmate.onnxio.body_memory import count_workspace_nbytes
from checkmate.onnxio.model import Model
from checkmate.onnxio.write import place_planned
from checkmate.problem import Problem
from checkmate.profiler.among import Means, name_graph, time_among
from checkmate.profiler.cache import CostCache, OpCost
from checkmate.profiler.flops import PROCESSOR, count_traffic_nbytes, estimate_op_ns
from checkmate.profiler.measure import Effort, measure_op
from checkmate.profiler.signature import Signature, sign
from checkmate.profiler.specify import specify_inputs
from checkmate.profiler.surroundings import Surroundings, survey
from checkmate.runtime.device import Device, count_drawable_nbytes
from checkmate.runtime.execute import RunOptions, run_model
from checkmate.runtime.protocol import Settings
from checkmate.runtime.worker import Limits, Worker

_MEMORY_PERCENT = 80
"""Of what is free: drawing the inputs and the kernels' workspace need the rest."""


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """How to profile."""

    threads: int = 0
    """As in the run that is planned; 0: one per physical core."""
    cache_folder: Path | None = None
    """Where costs are remembered; None: nowhere."""
    max_runs: int = 50
    max_ns: int = 100_000_000
    """How long to repeat one op."""
    timeout_s: float = 600.0
    """How long one op may take, all its runs together."""
    among: bool = True
    """Time ops among the others too, in runs of the whole graph."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a profile is."""

    n_done: int
    n_all: int
    """Signatures: ops that cost the same count once."""
    op: str
    """Name of an op of the signature that is done."""


@dataclass(frozen=True, slots=True)
class Estimated:
    """An op that could not be measured, so that its cost is an estimate."""

    op: str
    reason: str


@dataclass(frozen=True, slots=True)
class Profile:
    """Costs and how they were found."""

    costs: Costs
    n_signatures: int
    n_remembered: int
    """Signatures that the cache knew."""
    estimated: tuple[Estimated, ...]
    """In graph order."""
    alone: str = ""
    """Why the times are those of ops that run alone; empty: they are those among the others."""


def profile_model(
    model: Model,
    device: Device,
    options: ProfileOptions,
    on_progress: Callable[[Progress], None],
) -> Profile:
    """Return what the ops of ``model`` cost on ``device``, each distinct signature run once.

    An op that cannot run alone (control flow, no kernel, larger than the memory) is estimated:
    its analytic cost, times what measured ops of its kind took over theirs. Raises `RunError`
    when no op can be measured at all.
    """
    around = survey(model)
    signatures = tuple(sign(node, around) for node in model.nodes)
    desk = _Desk(around, device, options)
    representatives = dict(zip(reversed(signatures), reversed(model.nodes), strict=True))
    order = tuple(dict.fromkeys(signatures))
    names = {
        s: op.name for s, op in zip(reversed(signatures), reversed(model.graph.ops), strict=True)
    }
    with Worker(Limits(timeout_s=options.timeout_s)) as worker:
        for n_done, signature in enumerate(order, start=1):
            desk.find_cost(signature, representatives[signature], worker)
            on_progress(Progress(n_done, len(order), names[signature]))
        known = desk.complete(representatives)
        costs = Costs(
            tuple(known[signature].time_ns for signature in signatures),
            tuple(known[signature].workspace_nbytes for signature in signatures),
            Origin("profile", device.provider, device.name, device.onnxruntime),
        )
        alone = "not asked for"
        if options.among:
            costs, alone = desk.place_among(model, signatures, costs, worker)
    estimated = tuple(
        Estimated(op.name, desk.failures[signature])
        for op, signature in zip(model.graph.ops, signatures, strict=True)
        if signature in desk.failures
    )
    return Profile(costs, len(order), desk.n_remembered, estimated, alone)


def measure_whole_graph_ns(
    model: Model, device: Device, options: ProfileOptions, max_ns: int = 5_000_000_000
) -> int:
    """Return the median of the runs of the whole model that fit in ``max_ns``, at least one.

    The sum of op costs should come close to it.
    """
    settings = Settings(device.provider, options.threads)
    run = RunOptions(settings, n_runs=0, n_timed_runs=options.max_runs, max_timed_ns=max_ns)
    with place_planned(model) as path:
        time_ns = run_model(path, specify_inputs(model), run).time_ns
    assert time_ns is not None
    return time_ns


@dataclass(slots=True)
class _Desk:
    """What is known so far; lives as long as one profile."""

    around: Surroundings
    device: Device
    options: ProfileOptions
    known: dict[Signature, OpCost] = field(default_factory=dict)
    failures: dict[Signature, str] = field(default_factory=dict)
    n_remembered: int = 0

    def find_cost(self, signature: Signature, node: onnx.NodeProto, worker: Worker) -> None:
        """Look the cost up, or measure it and remember it, or note why neither is possible."""
        cache = self._open_cache()
        remembered = cache and cache.find(signature)
        if remembered:
            self.known[signature] = remembered
            self.n_remembered += 1
            return
        try:
            cost = measure_op(node, self.around, worker, self._make_effort())
        except RunError as error:
            self.failures[signature] = error.message
            return
        self.known[signature] = cost
        if cache:
            cache.remember(signature, cost)

    def place_among(
        self, model: Model, signatures: Sequence[Signature], alone: Costs, worker: Worker
    ) -> tuple[Costs, str]:
        """Return costs among the others, or those ``alone`` and why: remembered or measured."""
        cache, names = self._open_cache(), name_graph(model, signatures)
        remembered = {s: cache.find(name) for s, name in names.items()} if cache else {}
        found = {s: cost.time_ns for s, cost in remembered.items() if cost}
        if len(found) < len(names):
            means = Means(
                worker, self._settings(), self._count_memory_nbytes(), self.options.max_runs
            )
            try:
                found = time_among(model, signatures, Problem(model.graph, alone), means)
            # The file of a planned graph may be too large, or its folder full or closed.
            except (RunError, InputError, OutputError) as error:
                return alone, error.message
            if cache:
                for signature, time_ns in found.items():
                    cache.remember(names[signature], OpCost(time_ns, 0))
        return replace(alone, time_ns=tuple(found[signature] for signature in signatures)), ""

    def complete(self, nodes: Mapping[Signature, onnx.NodeProto]) -> dict[Signature, OpCost]:
        """Return the known costs and estimates of all others."""
        if self.failures and not self.known:
            raise RunError(
                f"no op could be measured: {next(iter(self.failures.values()))}",
                hint="use a smaller batch size or another device, or count with --costs flops",
            )
        return self.known | {s: self._estimate(nodes[s], nodes) for s in self.failures}

    def _estimate(self, node: onnx.NodeProto, nodes: Mapping[Signature, onnx.NodeProto]) -> OpCost:
        """Scale the analytic cost by how measured ops of the kind compare with theirs."""
        alike = [s for s in self.known if nodes[s].op_type == node.op_type] or list(self.known)
        measured_ns = sum(self.known[s].time_ns for s in alike)
        counted_ns = sum(estimate_op_ns(nodes[s], self.around, PROCESSOR) for s in alike)
        workspace_nbytes = sum(self.known[s].workspace_nbytes for s in alike)
        traffic_nbytes = sum(count_traffic_nbytes(nodes[s], self.around) for s in alike)
        own_ns = estimate_op_ns(node, self.around, PROCESSOR)
        own_nbytes = count_traffic_nbytes(node, self.around)
        return OpCost(
            own_ns * measured_ns // max(1, counted_ns),
            own_nbytes * workspace_nbytes // max(1, traffic_nbytes)
            + count_workspace_nbytes(self.around.find_bodies(node)),
        )

    def _open_cache(self) -> CostCache | None:
        folder = self.options.cache_folder
        return None if folder is None else CostCache(folder, self.device, self._settings())

    def _make_effort(self) -> Effort:
        options, memory_nbytes = self.options, self._count_memory_nbytes()
        return Effort(self._settings(), memory_nbytes, options.max_runs, options.max_ns)

    def _count_memory_nbytes(self) -> int:
        return count_drawable_nbytes(self.device) * _MEMORY_PERCENT // 100

    def _settings(self) -> Settings:
        return Settings(self.device.provider, self.options.threads)
