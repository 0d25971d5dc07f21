"""Optimize a model ahead of time, in a child process, so that what is planned is what runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from checkmate.errors import RunError
from checkmate.onnxio.doubts import find_unmasked
from checkmate.onnxio.load import load_proto
from checkmate.onnxio.model import Model
from checkmate.onnxio.optimized import adopt_model, count_folded_nbytes, prepare_model
from checkmate.runtime.protocol import Level, OptimizeTask, Provider
from checkmate.runtime.worker import Limits, Worker

MAX_FOLDED_NBYTES = 2**12
"""The largest tensor that folding may add to what is held throughout."""
_TIMEOUT_S = 600.0
_MAX_REPEATS = 6
"""Of optimization; two were seen to be needed, where casts cancel."""
_MAX_REPEATED_NODES = 10_000
"""The time that onnxruntime takes grows with the square of the graph: 20 s for 20,000 nodes."""


@dataclass(frozen=True, slots=True)
class Optimized:
    """A model as onnxruntime would run it."""

    model: Model
    onnxruntime: str
    """The version that optimized it; another one may optimize otherwise."""


def optimize_model(
    model: Model, level: Level, provider: Provider, loss: str | None = None
) -> Optimized:
    """Return ``model`` as onnxruntime optimizes it for ``provider`` under its bound dimensions.

    Inputs and outputs keep their names; weights are neither read nor folded. Raises `RunError`
    when onnxruntime does not take the model, `InputError` when the shapes of what it makes are
    unknown.
    """
    with Worker(Limits(timeout_s=_TIMEOUT_S)) as worker:
        given, made = worker.folder / "given.onnx", worker.folder / "optimized.onnx"
        given.write_bytes(prepare_model(model).SerializeToString())
        keeps_dropouts = find_unmasked(model) is not None
        task = OptimizeTask(
            str(given), str(made), level, provider, MAX_FOLDED_NBYTES, keeps_dropouts
        )
        version = _ask(worker, task)
        if count_folded_nbytes(model, load_proto(made)) > MAX_FOLDED_NBYTES:
            task = replace(task, max_folded_nbytes=0)
            _ask(worker, task)
        _repeat(worker, task)
        optimized = load_proto(made)
    return Optimized(adopt_model(model, optimized, loss), version)


def _repeat(worker: Worker, task: OptimizeTask) -> None:
    """Optimize what ``task`` wrote until no more nodes of it go.

    One pass of onnxruntime leaves nodes that the next one removes, as a session with default
    options would that loads the rewritten graph.
    """
    made = Path(task.optimized)
    further = made.with_name("further.onnx")
    n_nodes = len(load_proto(made).graph.node)
    for _ in range(_MAX_REPEATS if n_nodes <= _MAX_REPEATED_NODES else 0):
        _ask(worker, replace(task, model=str(made), optimized=str(further)))
        n_left = len(load_proto(further).graph.node)
        if n_left >= n_nodes:
            return
        n_nodes = n_left
        further.replace(made)


def _ask(worker: Worker, task: OptimizeTask) -> str:
    """Return the version of onnxruntime that did ``task``."""
    try:
        reply = worker.ask(task)
    except RunError as error:
        raise type(error)(
            f"the model cannot be optimized: {error.message}",
            hint="--optimize none keeps the graph as it is",
        ) from error
    if not Path(task.optimized).is_file():
        raise RunError("onnxruntime wrote no optimized model")
    return str(reply["version"])
