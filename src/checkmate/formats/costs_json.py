"""Costs as JSON files: ``checkmate.costs`` version 1.

Measured on one machine, solved on another.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from checkmate.costs import Costs, Origin
from checkmate.errors import InputError
from checkmate.formats.fields import parse_document, read_bounded
from checkmate.formats.schedule_json import parse_origin
from checkmate.graph import Graph

FORMAT = "checkmate.costs"
VERSION = 1


@dataclass(frozen=True, slots=True)
class CostsRecord:
    """A costs file."""

    graph_name: str
    graph_sha256: str
    dims: Mapping[str, int]
    origin: Origin
    time_ns: Mapping[str, int]
    """Per op name, in graph order."""
    workspace_nbytes: Mapping[str, int]
    """Per op name, in graph order."""


def make_record(graph: Graph, sha256: str, dims: Mapping[str, int], costs: Costs) -> CostsRecord:
    """Return the record of ``costs`` for ``graph``, whose digest is ``sha256``."""
    names = [op.name for op in graph.ops]
    return CostsRecord(
        graph.name,
        sha256,
        dims,
        costs.origin,
        dict(zip(names, costs.time_ns, strict=True)),
        dict(zip(names, costs.workspace_nbytes, strict=True)),
    )


def resolve_costs(record: CostsRecord, graph: Graph) -> Costs:
    """Return the costs of ``record`` for ``graph``; raise `InputError` when an op has none."""
    for op in graph.ops:
        if op.name not in record.time_ns:
            raise InputError(
                f"the costs have no op {op.name!r} of graph {graph.name!r}",
                hint="profile this model: checkmate profile MODEL -o costs.json",
            )
    names = [op.name for op in graph.ops]
    return Costs(
        tuple(record.time_ns[name] for name in names),
        tuple(record.workspace_nbytes[name] for name in names),
        record.origin,
    )


def digest_costs(graph: Graph, costs: Costs) -> str:
    """Return the SHA-256 of what ``costs`` says of each op by name; its origin does not count."""
    names = (op.name for op in graph.ops)
    rows = list(zip(names, costs.time_ns, costs.workspace_nbytes, strict=True))
    return hashlib.sha256(json.dumps(rows, separators=(",", ":")).encode()).hexdigest()


def render_costs(record: CostsRecord) -> str:
    """Return the file: one field a line, one op a line."""
    origin = record.origin
    head = {
        "format": FORMAT,
        "version": VERSION,
        "graph": {"name": record.graph_name, "sha256": record.graph_sha256},
        "dims": dict(sorted(record.dims.items())),
        "source": origin.source,
        "provider": origin.provider,
        "device": origin.device,
        "onnxruntime": origin.onnxruntime,
    }
    fields = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    ops = ",\n".join(
        json.dumps({"name": name, "time_ns": ns, "workspace_nbytes": record.workspace_nbytes[name]})
        for name, ns in record.time_ns.items()
    )
    return "{\n" + ",\n".join([*fields, f'"ops": [\n{ops}\n]']) + "\n}\n"


def read_costs(path: Path) -> CostsRecord:
    """Return the costs file at ``path``; raise `InputError`, saying where, when it is none."""
    try:
        return parse_costs(read_bounded(path))
    except InputError as error:
        raise InputError(f"costs {str(path)!r}: {error.message}", hint=error.hint) from error


def parse_costs(data: bytes) -> CostsRecord:
    """Return the costs in the JSON document ``data``; raise `InputError`, saying where."""
    document = parse_document(data, format_=FORMAT, versions=(VERSION,))
    graph, ops = document.nested("graph"), document.objects("ops")
    names = [op.text("name") for op in ops]
    if len(set(names)) < len(names):
        raise InputError("an op is named twice")
    return CostsRecord(
        graph.text("name"),
        graph.text("sha256"),
        document.integers("dims"),
        parse_origin(document),
        dict(zip(names, (op.integer("time_ns") for op in ops), strict=True)),
        dict(zip(names, (op.integer("workspace_nbytes") for op in ops), strict=True)),
    )
