"""What a command is given: a model or a problem, as a problem with costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from checkmate.cli.optimizing import is_optimized_already, optimize
from checkmate.costs import Costs
from checkmate.errors import InputError, UsageError
from checkmate.formats.costs_json import read_costs, resolve_costs
from checkmate.formats.digest import digest_graph
from checkmate.formats.problem_json import read_problem
from checkmate.formats.schedule_json import Lineage, Optimization, ScheduleRecord
from checkmate.onnxio.digest import digest_model
from checkmate.onnxio.doubts import find_unrunnable
from checkmate.onnxio.load import load_proto
from checkmate.onnxio.model import Model
from checkmate.onnxio.read import read_model
from checkmate.onnxio.rewrite import is_rewritten
from checkmate.onnxio.seeding import free_seeded
from checkmate.onnxio.storage import find_arena_rules
from checkmate.onnxio.weights import measure_weights
from checkmate.problem import Problem
from checkmate.profiler.flops import estimate_costs
from checkmate.profiler.learn_types import learn_types


@dataclass(frozen=True, slots=True)
class Source:
    """A problem and where it came from."""

    problem: Problem
    sha256: str
    """Digest of the structure of what is planned, or of the problem's graph."""
    model: Model | None
    """What is planned. None: a problem file was given, so there is nothing to rewrite or run."""
    dims: Mapping[str, int]
    lineage: Lineage
    """How ``model`` was made from the file that was given."""

    def check_digest(self, record: ScheduleRecord) -> None:
        """Raise `InputError` when ``record`` is not for this graph."""
        if record.graph.sha256 in (self.sha256, digest_graph(self.problem.graph)):
            return
        planned, own = record.graph.lineage, self.lineage
        if planned != own and planned.source_sha256 == own.source_sha256:
            raise InputError(
                f"the schedule is for the graph that {_name_optimizer(planned)} makes of this"
                f" model; {_name_optimizer(own)} makes another one",
                hint="solve it again, or give the graph that `solve --optimized-model` wrote",
            )
        raise InputError(
            f"the schedule is for graph {record.graph.name!r} with digest"
            f" {record.graph.sha256[:12]}, but the model has digest {self.sha256[:12]}",
            hint="the model has changed since, or the schedule is of a problem file that was"
            " exported of an optimized graph (export --optimize none): solve it again",
        )


def _name_optimizer(lineage: Lineage) -> str:
    if lineage.optimization == "none":
        return "no optimizer"
    return f"onnxruntime {lineage.onnxruntime} ({lineage.optimization}, {lineage.provider})"


@dataclass(frozen=True, slots=True)
class Asked:
    """The options that say how to read a model and what its ops cost."""

    dims: Mapping[str, int]
    loss: str | None = None
    costs: str = "auto"
    provider: Literal["auto", "cuda", "cpu"] = "auto"
    arena: bool | None = False
    """Also fit what onnxruntime's arena adds to the bytes asked of it; None: unless the costs are
    those of CUDA, whose arena cannot be had in one region, so that it adds too much."""
    optimize: Optimization | None = "none"
    """How far onnxruntime optimizes the model first; None: by default, where it can."""
    shapes_from_run: bool = False
    """Take shapes that no rule tells from one run."""
    on_cpu: bool | None = None
    """The run is to be on the CPU, where ops with a seed may run again; None: as the costs say."""


def is_document(path: Path) -> bool:
    """Return whether ``path`` is one of our JSON documents rather than a model."""
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise InputError(
                f"cannot read {str(path)!r}: it is a pipe or a device, not a regular file",
                hint="write it to a file first",
            )
        with path.open("rb") as file:
            return file.read(256).lstrip()[:1] == b"{"
    except OSError as error:
        raise InputError(f"cannot read {str(path)!r}: {error.strerror}") from error


def list_input_files(path: Path, costs: str) -> list[Path]:
    """Return the files that reading ``path`` with these ``--costs`` reads: no output may be one."""
    ends = {} if is_document(path) else measure_weights(load_proto(path))
    weights = (path.resolve().parent / location for location in ends)
    return [path, *weights, *([] if costs in ("auto", "flops") else [Path(costs)])]


def read_source(path: Path, asked: Asked) -> Source:
    """Return what ``path`` holds; a model is measured or counted as ``asked``."""
    if is_document(path):
        return _read_problem_source(path, asked)
    model, lineage = read_planned(path, asked)
    sha256 = digest_model(model)
    costs = find_costs(model, sha256, asked)
    is_on_cpu = costs.origin.provider == "cpu" if asked.on_cpu is None else asked.on_cpu
    model = free_seeded(model) if is_on_cpu else model
    # Costs that were not measured are of no provider.
    provider: Literal["cuda", "cpu"] = "cuda" if costs.origin.provider == "cuda" else "cpu"
    has_arena = provider == "cpu" if asked.arena is None else asked.arena
    rules = find_arena_rules(model, provider) if has_arena else None
    return Source(Problem(model.graph, costs, rules), sha256, model, asked.dims, lineage)


def read_planned(path: Path, asked: Asked) -> tuple[Model, Lineage]:
    """Return the model in ``path`` as it is to be planned, optimized as ``asked``."""
    measured = learn_types(path, asked.dims) if asked.shapes_from_run else {}
    model = read_model(path, asked.dims, asked.loss, measured)
    optimization = asked.optimize
    if optimization is None and (find_unrunnable(model) or _is_costed(model, asked.costs)):
        optimization = "none"
    return optimize(model, optimization, asked.provider, asked.loss)


def read_source_of(record: ScheduleRecord, path: Path, asked: Asked) -> Source:
    """Return the model in ``path`` as the schedule of ``record`` was planned for it.

    It may also be the optimized graph itself. Raises `InputError` when it is neither, as the
    rewritten model is.
    """
    try:
        return _read_source_of(record, path, asked)
    except (InputError, UsageError) as error:
        if is_document(path) or not is_rewritten(load_proto(path)):
            raise
        raise InputError(
            f"{str(path)!r} is a rewritten model; a schedule is checked against the model that it"
            " was solved from",
            hint="give that one; `check MODEL SCHEDULE --run --onnx FILE` runs the rewritten one",
        ) from error


def _read_source_of(record: ScheduleRecord, path: Path, asked: Asked) -> Source:
    lineage = record.graph.lineage
    asked = replace(asked, on_cpu=record.origin.provider == "cpu")
    if is_document(path):
        source = read_source(path, Asked({}))
    elif is_optimized_already(path, record, asked.loss):
        source = read_source(path, replace(asked, dims={}))
    else:
        provider: Literal["auto", "cpu"] = "cpu" if lineage.provider == "cpu" else "auto"
        again = replace(asked, optimize=lineage.optimization, provider=provider)
        source = read_source(path, again)
    source = _free_as_exported(source, record)
    source.check_digest(record)
    return source


def _free_as_exported(source: Source, record: ScheduleRecord) -> Source:
    """Return ``source``, for the CPU where ``record`` is of a problem exported for the CPU."""
    if source.model is None:
        return source
    model = free_seeded(source.model)
    if record.graph.sha256 != digest_graph(model.graph):
        return source
    return replace(source, model=model, problem=replace(source.problem, graph=model.graph))


def _read_problem_source(path: Path, asked: Asked) -> Source:
    if asked.dims or asked.loss or asked.costs != "auto":
        raise UsageError("a problem file has its own sizes and costs: no --dim, --loss or --costs")
    if asked.optimize not in (None, "none"):
        raise UsageError("a problem file has no model to optimize: no --optimize")
    problem = read_problem(path)
    sha256 = digest_graph(problem.graph)
    return Source(problem, sha256, None, {}, Lineage(sha256))


def _is_costed(model: Model, costs: str) -> bool:
    """Return whether a file of costs was given that is for ``model`` as it is."""
    if costs in ("auto", "flops"):
        return False
    return read_costs(Path(costs)).graph_sha256 == digest_model(model)


def find_costs(model: Model, sha256: str, asked: Asked) -> Costs:
    """Return what the ops of ``model`` cost."""
    if asked.costs == "flops" or (asked.costs == "auto" and find_unrunnable(model) is not None):
        costs = estimate_costs(model)
        # Counted costs are of no provider, unless the run is said to be on the CPU.
        is_cpu = asked.provider == "cpu"
        return replace(costs, origin=replace(costs.origin, provider="cpu" if is_cpu else ""))
    if asked.costs != "auto":
        return _read_costs_for(model, sha256, Path(asked.costs))
    from checkmate.cli.measuring import measure

    return measure(model, asked.provider)[0].costs


def _read_costs_for(model: Model, sha256: str, path: Path) -> Costs:
    record = read_costs(path)
    if record.graph_sha256 != sha256:
        raise InputError(
            f"costs {str(path)!r} are for graph {record.graph_name!r} with digest"
            f" {record.graph_sha256[:12]}, but the model has digest {sha256[:12]}",
            hint="profile this model with the same --dim and --optimize:"
            f" checkmate profile {model.path.name}",
        )
    return resolve_costs(record, model.graph)
