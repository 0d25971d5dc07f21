"""The two files that are run: the original graph and the rewritten one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from checkmate.errors import InputError
from checkmate.files import write_files
from checkmate.onnxio.load import has_external_data, load_proto
from checkmate.onnxio.model import Model
from checkmate.onnxio.rewrite import rewrite_model
from checkmate.onnxio.seeding import is_random, render_seeded
from checkmate.onnxio.windows import Fences
from checkmate.onnxio.write import copy_planned
from checkmate.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Rewriting:
    """A model as it is rewritten."""

    model: Model
    schedule: Schedule
    fences: Fences
    written: Path | None = None
    """The rewritten model in question; None: it is written anew."""


@dataclass(frozen=True, slots=True)
class Files:
    """Two models on disk."""

    original: Path
    rewritten: Path


def require_alike(model: Model, written: Path) -> None:
    """Raise `InputError` when ``written`` cannot be a rewriting of ``model``: other ends."""
    given, own = load_proto(written).graph, model.proto.graph
    for what, theirs, ours in (
        ("inputs", given.input, own.input),
        ("outputs", given.output, own.output),
    ):
        names, wanted = ({item.name for item in items} for items in (theirs, ours))
        odd = sorted(names ^ wanted)
        if odd:
            raise InputError(
                f"{str(written)!r} has other {what} than the model, {odd[0]!r} for one",
                hint="give the rewritten model that belongs to the schedule",
            )


@contextmanager
def write_pair(rewriting: Rewriting, folder: Path) -> Iterator[Files]:
    """Write what is run to files that are gone afterwards.

    They lie in ``folder``, or beside the file that they are made from when that keeps weights in
    other files. The original is the model as it is planned. Where it draws random numbers, both
    files get seeds: sessions would draw other ones. A file that is to be run as it is stays.
    """
    model, written = rewriting.model, rewriting.written
    is_apart = has_external_data(model.proto)
    places = [
        (base.parent / f".{folder.name}-{name}.onnx" if is_apart else folder / f"{name}.onnx")
        for name, base in (("original", model.path), ("rewritten", written or model.path))
    ]
    contents: dict[Path, bytes] = {}
    if is_random(model) or model.is_optimized or model.namesake is not None:
        contents[places[0]] = render_seeded(copy_planned(model), model.path)
    if is_random(model) or written is None:
        contents[places[1]] = _render(rewriting)
    try:
        write_files(contents)
        yield Files(
            places[0] if places[0] in contents else model.path,
            places[1] if places[1] in contents else written or model.path,
        )
    finally:
        for path in contents:
            path.unlink(missing_ok=True)


def _render(rewriting: Rewriting) -> bytes:
    if rewriting.written is not None:
        return render_seeded(load_proto(rewriting.written), rewriting.written)
    model = rewriting.model
    rewritten = rewrite_model(model, rewriting.schedule, rewriting.fences)
    return render_seeded(rewritten, model.path)
