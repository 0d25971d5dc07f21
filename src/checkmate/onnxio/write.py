"""A rewritten model as the content of a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from checkmate.errors import InputError
from checkmate.onnxio.model import Model
from checkmate.onnxio.rewrite import rewrite_model
from checkmate.onnxio.weights import (
    WeightFile,
    measure_weights,
    place_weights,
    relocate_weights,
)
from checkmate.onnxio.windows import Fences
from checkmate.schedule import Schedule

_MAX_NBYTES = 2**31 - 1
"""Protocol buffers cannot hold more in one file."""


def render_model(
    model: Model,
    schedule: Schedule,
    path: Path,
    fences: Fences = "none",
    weights: Sequence[WeightFile] | None = None,
) -> bytes:
    """Return the content of the file ``path`` that runs ``schedule``.

    ``weights`` says where it finds external data; None: where the model has it, which raises
    `UsageError` when a model at ``path`` may not refer to that.
    """
    if weights is None:
        weights = place_weights(measure_weights(model.proto), model.path, path, copies=False)
    rewritten = rewrite_model(model, schedule, fences)
    relocate_weights(rewritten, weights)
    if rewritten.ByteSize() > _MAX_NBYTES:
        raise InputError(f"the rewritten model has {rewritten.ByteSize()} B, above 2 GiB")
    content: bytes = rewritten.SerializeToString(deterministic=True)
    return content
