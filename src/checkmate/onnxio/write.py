"""A rewritten model as the content of a file."""

from __future__ import annotations

from pathlib import Path

from checkmate.errors import InputError
from checkmate.onnxio.load import has_external_data
from checkmate.onnxio.model import Model
from checkmate.onnxio.rewrite import rewrite_model
from checkmate.onnxio.windows import Fences
from checkmate.schedule import Schedule

_MAX_NBYTES = 2**31 - 1
"""Protocol buffers cannot hold more in one file."""


def render_model(model: Model, schedule: Schedule, path: Path, fences: Fences = "none") -> bytes:
    """Return the content of the file ``path`` that runs ``schedule``.

    External data stays where it is: raises `InputError` when ``path`` is in another folder than
    the model, because its data would not be found from there.
    """
    if has_external_data(model.proto) and path.resolve().parent != model.path.resolve().parent:
        raise InputError(
            f"model {model.path.name!r} keeps weights in other files, which {str(path)!r}"
            " would not find",
            hint=f"write the rewritten model to {str(model.path.resolve().parent)!r}",
        )
    rewritten = rewrite_model(model, schedule, fences)
    if rewritten.ByteSize() > _MAX_NBYTES:
        raise InputError(f"the rewritten model has {rewritten.ByteSize()} B, above 2 GiB")
    content: bytes = rewritten.SerializeToString(deterministic=True)
    return content
