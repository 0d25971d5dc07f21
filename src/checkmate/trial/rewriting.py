"""The two files that are run: the original graph and the rewritten one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from checkmate.files import write_files
from checkmate.onnxio.load import has_external_data, load_proto
from checkmate.onnxio.model import Model
from checkmate.onnxio.rewrite import rewrite_model
from checkmate.onnxio.seeding import is_random, render_seeded
from checkmate.onnxio.windows import Fences
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


@contextmanager
def write_pair(rewriting: Rewriting, folder: Path) -> Iterator[Files]:
    """Write what is run to files that are gone afterwards.

    They lie in ``folder``, or beside the model when that keeps weights in other files. Where a
    model draws random numbers, both files get seeds: sessions would draw other ones.
    """
    model = rewriting.model
    is_beside = has_external_data(model.proto)
    place = model.path.parent if is_beside else folder
    prefix = f".{folder.name}-" if is_beside else ""
    contents = {place / f"{prefix}rewritten.onnx": _render(rewriting)}
    original = model.path
    if is_random(model):
        original = place / f"{prefix}original.onnx"
        contents[original] = render_seeded(model.proto)
    try:
        write_files(contents)
        yield Files(original, next(iter(contents)))
    finally:
        if is_beside:
            for path in contents:
                path.unlink(missing_ok=True)


def _render(rewriting: Rewriting) -> bytes:
    if rewriting.written is not None:
        return render_seeded(load_proto(rewriting.written))
    return render_seeded(rewrite_model(rewriting.model, rewriting.schedule, rewriting.fences))
