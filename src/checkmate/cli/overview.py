"""A model or a problem on one screen, and in one document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from checkmate.cli import memory_page, outlining
from checkmate.cli.noting import list_doubts
from checkmate.cli.report import echo_note
from checkmate.cli.source import Asked, Source, is_document, read_source
from checkmate.engine.footprint import find_footprint
from checkmate.errors import InputError
from checkmate.onnxio.outline import outline_file, outline_model
from checkmate.onnxio.read import read_proto

PROBLEM_REASON = "the problem says so"


@dataclass(frozen=True, slots=True)
class Shown:
    """What was shown, for ``--json``."""

    document: Mapping[str, object]
    error: InputError | None = None
    """Why there is no more to show; None: all was shown, or only dimensions are missing."""


def show_source(file: Path, asked: Asked) -> Shown:
    """Show the model or the problem in ``file``; of a model that cannot be sized, what can be.

    Raises `InputError` where not even that can be read.
    """
    try:
        source = read_source(file, asked)
    except InputError as error:
        if is_document(file):
            raise
        return _show_unsized(file, asked, error)
    return _show_sized(source, asked)


def _show_sized(source: Source, asked: Asked) -> Shown:
    graph = source.problem.graph
    n_views = sum(tensor.source is not None for tensor in graph.tensors)
    n_backward = sum(op.backward for op in graph.ops)
    pins = sum(not op.recomputable for op in graph.ops)
    document = _count_ops(_Counts(graph.name, len(graph.ops), n_backward, n_views, pins))
    document |= {"sha256": source.sha256, "tensors": len(graph.tensors)}
    notes = [*list_doubts(source)]
    if source.model is None:
        pinned = [op.name for op in graph.ops if not op.recomputable]
        document |= {"pinned": [{"op": name, "reason": PROBLEM_REASON} for name in pinned]}
    else:
        outline = outline_model(source.model, asked.loss)
        _echo_all(outlining.list_lines(outline, asked.dims))
        document |= outlining.make_document(outline, asked.dims)
        notes += outlining.list_gaps(outline)
    found = find_footprint(source.problem)
    memory_page.print_memory(graph, found)
    _echo_all(f"note: {note}" for note in notes)
    return Shown(document | memory_page.make_document(graph, found) | {"notes": notes})


def _show_unsized(file: Path, asked: Asked, error: InputError) -> Shown:
    """Show what a model holds whose tensors have no sizes, because of ``error``."""
    proto = read_proto(file)
    outline = outline_file(proto, asked.loss)
    n_views = sum(outline.view_types.values())
    name = proto.graph.name or file.stem
    counts = _Counts(name, outline.n_ops, outline.n_backward, n_views, len(outline.pins))
    document = _count_ops(counts) | outlining.make_document(outline, asked.dims)
    _echo_all(outlining.list_lines(outline, asked.dims))
    missing = outlining.find_missing(outline, asked.dims)
    notes = [*outlining.list_gaps(outline)]
    if missing:
        options = " ".join(f"--dim {dim}=VALUE" for dim in missing)
        notes.append(f"sizes and peaks need {options}")
    _echo_all(f"note: {note}" for note in notes)
    if missing:
        return Shown(document | {"notes": notes})
    return Shown(document | {"notes": [*notes, error.message]}, error)


@dataclass(frozen=True, slots=True)
class _Counts:
    """The figures of the first line."""

    name: str
    n_ops: int
    n_backward: int
    n_views: int
    n_pinned: int


def _count_ops(counts: _Counts) -> dict[str, object]:
    """Print the first line and return what ``--json`` says of it."""
    n_forward = counts.n_ops - counts.n_backward
    echo_note(
        f"{counts.name}: {counts.n_ops} ops, {n_forward} forward and {counts.n_backward} backward;"
        f" {counts.n_views} views; {counts.n_pinned} ops that may run only once"
    )
    return {
        "name": counts.name,
        "ops": counts.n_ops,
        "forward_ops": n_forward,
        "backward_ops": counts.n_backward,
        "pinned_ops": counts.n_pinned,
        "views": counts.n_views,
    }


def _echo_all(lines: Iterable[str]) -> None:
    for line in lines:
        echo_note(line)
