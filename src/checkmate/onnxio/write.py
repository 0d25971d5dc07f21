"""A model as it is planned or rewritten, as the content of a file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import onnx

from checkmate.errors import InputError
from checkmate.files import write_files
from checkmate.onnxio.cutting import measure_cut, render_whole
from checkmate.onnxio.model import Model
from checkmate.onnxio.order import wire
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
    return _render(rewrite_model(model, schedule, fences), weights, model.path)


def render_planned(model: Model, path: Path) -> bytes:
    """Return the content of the file ``path`` that holds ``model`` as it is planned.

    External data stays where it is; raises what `render_model` does.
    """
    planned = copy_planned(model)
    weights = place_weights(measure_weights(planned), model.path, path, copies=False)
    return _render(planned, weights, model.path)


def copy_planned(model: Model) -> onnx.ModelProto:
    """Return ``model`` as it is planned; its nodes have the names of their ops."""
    planned = onnx.ModelProto()
    planned.CopyFrom(model.proto)
    ops = zip(model.graph.ops, model.nodes, strict=True)
    names = {wire(node).makes[0]: op.name for op, node in ops}
    for node in planned.graph.node:
        node.name = names.get(wire(node).makes[0], node.name)
    return planned


@contextmanager
def place_file(model: Model, content: Callable[[Path], bytes]) -> Iterator[Path]:
    """Write ``content(path)`` to a file that finds the weights of ``model``; gone afterwards.

    It lies in a folder of its own, or beside the model when that keeps weights in other files.
    """
    with tempfile.TemporaryDirectory(prefix="checkmate-") as name:
        path = Path(name) / "model.onnx"
        if measure_weights(model.proto):
            path = model.path.parent / f".{Path(name).name}.onnx"
        try:
            write_files({path: content(path)})
            yield path
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def place_planned(model: Model, *, is_named: bool = False) -> Iterator[Path]:
    """Yield a file that holds ``model`` as it is planned.

    It is its own where it was not optimized, and where onnxruntime takes the names of its nodes.
    Where these have to be the names of the ops, ``is_named``, each must have one.
    """
    has_names = not is_named or all(node.name for node in model.proto.graph.node)
    if not model.is_optimized and model.namesake is None and has_names:
        yield model.path
        return
    with place_file(model, lambda path: render_planned(model, path)) as path:
        yield path


def _render(proto: onnx.ModelProto, weights: Sequence[WeightFile], source: Path) -> bytes:
    relocate_weights(proto, weights)
    nbytes = proto.ByteSize() + measure_cut(proto)
    if nbytes > _MAX_NBYTES:
        raise InputError(f"the written model has {nbytes} B, above 2 GiB")
    return render_whole(proto, source)
