"""What a command is given: a model or a problem, as a problem with costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from checkmate.costs import Costs
from checkmate.errors import InputError, UsageError
from checkmate.formats.costs_json import read_costs, resolve_costs
from checkmate.formats.digest import digest_graph
from checkmate.formats.problem_json import read_problem
from checkmate.formats.schedule_json import ScheduleRecord
from checkmate.onnxio.digest import digest_model
from checkmate.onnxio.doubts import find_unrunnable
from checkmate.onnxio.model import Model
from checkmate.onnxio.read import read_model
from checkmate.onnxio.storage import find_arena_rules
from checkmate.problem import Problem
from checkmate.profiler.flops import estimate_costs
from checkmate.profiler.learn_types import learn_types


@dataclass(frozen=True, slots=True)
class Source:
    """A problem and where it came from."""

    problem: Problem
    sha256: str
    """Digest of the model's structure, or of the problem's graph."""
    model: Model | None
    """None: a problem file was given, so there is nothing to rewrite or run."""
    dims: Mapping[str, int]

    def check_digest(self, record: ScheduleRecord) -> None:
        """Raise `InputError` when ``record`` is not for this graph."""
        if record.graph.sha256 != self.sha256:
            raise InputError(
                f"the schedule is for graph {record.graph.name!r} with digest"
                f" {record.graph.sha256[:12]}, but the model has digest {self.sha256[:12]}",
                hint="the model has changed since: solve it again",
            )


@dataclass(frozen=True, slots=True)
class Asked:
    """The options that say how to read a model and what its ops cost."""

    dims: Mapping[str, int]
    loss: str | None = None
    costs: str = "auto"
    provider: Literal["auto", "cuda", "cpu"] = "auto"
    arena: bool = False
    """Also fit what onnxruntime's arena adds to the bytes asked of it."""
    shapes_from_run: bool = False
    """Take shapes that no rule tells from one run."""


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


def read_source(path: Path, asked: Asked) -> Source:
    """Return what ``path`` holds; a model is measured or counted as ``asked``."""
    if is_document(path):
        return _read_problem_source(path, asked)
    measured = learn_types(path, asked.dims) if asked.shapes_from_run else {}
    model = read_model(path, asked.dims, asked.loss, measured)
    sha256 = digest_model(model)
    costs = find_costs(model, sha256, asked)
    # Costs that were not measured are of no provider.
    provider: Literal["cuda", "cpu"] = "cuda" if costs.origin.provider == "cuda" else "cpu"
    rules = find_arena_rules(model, provider) if asked.arena else None
    return Source(Problem(model.graph, costs, rules), sha256, model, asked.dims)


def _read_problem_source(path: Path, asked: Asked) -> Source:
    if asked.dims or asked.loss or asked.costs != "auto":
        raise UsageError("a problem file has its own sizes and costs: no --dim, --loss or --costs")
    problem = read_problem(path)
    return Source(problem, digest_graph(problem.graph), None, {})


def find_costs(model: Model, sha256: str, asked: Asked) -> Costs:
    """Return what the ops of ``model`` cost."""
    if asked.costs == "flops" or (asked.costs == "auto" and find_unrunnable(model) is not None):
        return estimate_costs(model)
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
            hint=f"profile this model with the same --dim: checkmate profile {model.path.name}",
        )
    return resolve_costs(record, model.graph)
