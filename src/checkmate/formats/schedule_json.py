"""Schedules as JSON files: ``checkmate.schedule`` version 2.

Version 1 had neither optimized graphs nor another order than the file's. Names, not ids; integers
and strings, no floats and no clock time, so that equal solves write equal bytes. Any change to the
format is a new version; every version is read for ever.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, cast, get_args

from checkmate.costs import Origin
from checkmate.errors import InputError
from checkmate.formats.fields import Fields, parse_document, read_bounded
from checkmate.graph import Graph, OpId, TensorId
from checkmate.plan import Claim, SolverInfo, Space, Termination
from checkmate.schedule import Compute, Free, Instruction, Schedule

FORMAT = "checkmate.schedule"
VERSION = 2
VERSIONS = (1, 2)
"""Those that are read."""

_KEYS = (
    "format", "version", "graph", "costs", "dims", "budget_nbytes", "peak_nbytes",
    "baseline_peak_nbytes", "peak", "time_ns", "baseline_time_ns", "bound_ns", "search", "solver",
    "runtime", "instructions",
)  # fmt: skip

CostSource = Literal["profile", "flops", "file"]
Optimization = Literal["none", "basic", "extended"]
"""How far onnxruntime optimized the graph before it was planned."""
Order = Literal["file", "memory"]
"""Where the order of first computes comes from: the model, or a search for less memory."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """How a graph was made from the model that was given."""

    source_sha256: str
    """Digest of the model as it was given."""
    optimization: Optimization = "none"
    onnxruntime: str = ""
    """The version that optimized it; empty when none did."""
    provider: str = ""
    """The execution provider that it was optimized for; empty when it was not."""


@dataclass(frozen=True, slots=True)
class GraphRecord:
    """Which graph a schedule is for."""

    name: str
    sha256: str
    n_ops: int
    n_tensors: int
    lineage: Lineage


@dataclass(frozen=True, slots=True)
class PeakRecord:
    """What fills the memory at the peak."""

    op: str
    """The op that runs then; empty when no op needs more than what is resident."""
    resident_nbytes: int
    live_nbytes: int
    workspace_nbytes: int
    fragmentation_nbytes: int


@dataclass(frozen=True, slots=True)
class ScheduleRecord:
    """A schedule file."""

    graph: GraphRecord
    costs_sha256: str
    origin: Origin
    dims: Mapping[str, int]
    budget_nbytes: int
    peak_nbytes: int
    baseline_peak_nbytes: int
    """The peak without recompute, in the same order."""
    peak: PeakRecord
    time_ns: int
    baseline_time_ns: int
    claim: Claim
    runtime: Mapping[str, str]
    """Advice to run it: onnxruntime's names of session options and their values."""
    instructions: tuple[tuple[Literal["compute", "free"], str], ...]
    order: Order = "file"


def name_instructions(
    graph: Graph, schedule: Schedule
) -> tuple[tuple[Literal["compute", "free"], str], ...]:
    """Return the instructions of ``schedule`` by name, as they stand in a file."""
    return tuple(
        ("compute", graph.ops[step.op].name)
        if isinstance(step, Compute)
        else ("free", graph.tensors[step.tensor].name)
        for step in schedule.instructions
    )


def resolve_instructions(record: ScheduleRecord, graph: Graph) -> Schedule:
    """Return the schedule of ``record`` for ``graph``.

    Raises `InputError` when it names an op or a tensor that ``graph`` does not have.
    """
    ops = {op.name: OpId(i) for i, op in enumerate(graph.ops)}
    tensors = {tensor.name: TensorId(i) for i, tensor in enumerate(graph.tensors)}
    steps: list[Instruction] = []
    for kind, name in record.instructions:
        if name not in (ops if kind == "compute" else tensors):
            what = "op" if kind == "compute" else "tensor"
            raise InputError(f"the schedule names {what} {name!r}, which the graph does not have")
        steps.append(Compute(ops[name]) if kind == "compute" else Free(tensors[name]))
    return Schedule(tuple(steps))


def make_document(record: ScheduleRecord) -> dict[str, object]:
    """Return the file's fields in order, without ``instructions``."""
    graph, claim = record.graph, record.claim
    return {
        "format": FORMAT,
        "version": VERSION,
        "graph": {
            "name": graph.name,
            "sha256": graph.sha256,
            "ops": graph.n_ops,
            "tensors": graph.n_tensors,
            **asdict(graph.lineage),
        },
        "costs": {"sha256": record.costs_sha256, **asdict(record.origin)},
        "dims": dict(sorted(record.dims.items())),
        "budget_nbytes": record.budget_nbytes,
        "peak_nbytes": record.peak_nbytes,
        "baseline_peak_nbytes": record.baseline_peak_nbytes,
        "peak": asdict(record.peak),
        "time_ns": record.time_ns,
        "baseline_time_ns": record.baseline_time_ns,
        "bound_ns": claim.bound_ns,
        "search": {
            "strategy": claim.strategy,
            "space": claim.space,
            "termination": claim.termination,
            "order": record.order,
        },
        "solver": asdict(claim.solver),
        "runtime": dict(sorted(record.runtime.items())),
    }


def render_schedule(record: ScheduleRecord) -> str:
    """Return the file: one field a line, one instruction a line."""
    fields = [
        f"{json.dumps(key)}: {json.dumps(value)}" for key, value in make_document(record).items()
    ]
    steps = ",\n".join(json.dumps({kind: name}) for kind, name in record.instructions)
    return "{\n" + ",\n".join([*fields, f'"instructions": [\n{steps}\n]']) + "\n}\n"


def read_schedule(path: Path) -> ScheduleRecord:
    """Return the schedule file at ``path``; raise `InputError`, saying where, when it is none."""
    try:
        return parse_schedule(read_bounded(path))
    except InputError as error:
        raise InputError(f"schedule {str(path)!r}: {error.message}", hint=error.hint) from error


def parse_schedule(data: bytes) -> ScheduleRecord:
    """Return the schedule in the JSON document ``data``; raise `InputError`, saying where."""
    document = parse_document(data, format_=FORMAT, versions=VERSIONS)
    document.check_keys(_KEYS)
    is_first = document.integer("version") == 1
    costs = document.nested("costs")
    return ScheduleRecord(
        graph=_parse_graph(document.nested("graph"), has_lineage=not is_first),
        costs_sha256=costs.text("sha256"),
        origin=parse_origin(costs),
        dims=document.integers("dims"),
        budget_nbytes=document.integer("budget_nbytes"),
        peak_nbytes=document.integer("peak_nbytes"),
        baseline_peak_nbytes=document.integer("baseline_peak_nbytes"),
        peak=_parse_peak(document.nested("peak")),
        time_ns=document.integer("time_ns"),
        baseline_time_ns=document.integer("baseline_time_ns"),
        claim=_parse_claim(document),
        runtime=document.strings("runtime"),
        instructions=tuple(map(_parse_instruction, document.objects("instructions"))),
        order="file" if is_first else _parse_order(document.nested("search")),
    )


def parse_origin(fields: Fields) -> Origin:
    """Return where costs come from."""
    source = fields.choice("source", get_args(CostSource))
    return Origin(
        cast("CostSource", source),
        fields.text("provider"),
        fields.text("device"),
        fields.text("onnxruntime"),
    )


def _parse_graph(fields: Fields, *, has_lineage: bool) -> GraphRecord:
    sha256 = fields.text("sha256")
    return GraphRecord(
        fields.text("name"),
        sha256,
        fields.integer("ops"),
        fields.integer("tensors"),
        _parse_lineage(fields) if has_lineage else Lineage(sha256),
    )


def _parse_lineage(fields: Fields) -> Lineage:
    optimization = fields.choice("optimization", get_args(Optimization))
    return Lineage(
        fields.text("source_sha256"),
        cast("Optimization", optimization),
        fields.text("onnxruntime"),
        fields.text("provider"),
    )


def _parse_order(search: Fields) -> Order:
    return cast("Order", search.choice("order", get_args(Order)))


def _parse_peak(fields: Fields) -> PeakRecord:
    return PeakRecord(
        fields.text("op"),
        fields.integer("resident_nbytes"),
        fields.integer("live_nbytes"),
        fields.integer("workspace_nbytes"),
        fields.integer("fragmentation_nbytes"),
    )


def _parse_claim(document: Fields) -> Claim:
    search, solver = document.nested("search"), document.nested("solver")
    return Claim(
        search.text("strategy"),
        cast("Space", search.choice("space", get_args(Space))),
        document.integer("bound_ns"),
        cast("Termination", search.choice("termination", get_args(Termination))),
        SolverInfo(
            solver.text("name"),
            solver.text("version"),
            solver.integer("threads"),
            solver.integer("seed"),
        ),
    )


def _parse_instruction(fields: Fields) -> tuple[Literal["compute", "free"], str]:
    fields.check_keys(("compute",) if "compute" in fields else ("free",))
    return (
        ("compute", fields.text("compute"))
        if "compute" in fields
        else ("free", fields.text("free"))
    )
