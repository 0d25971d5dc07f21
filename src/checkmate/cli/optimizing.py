"""The choice of an optimization: asked for, possible, and the graph that follows."""

from __future__ import annotations

from pathlib import Path

from checkmate.cli.options import DEFAULT_OPTIMIZATION
from checkmate.cli.report import echo_note
from checkmate.errors import InputError, RunError
from checkmate.formats.schedule_json import Lineage, Optimization, ScheduleRecord
from checkmate.onnxio.digest import digest_model
from checkmate.onnxio.dims import find_dims
from checkmate.onnxio.load import load_proto
from checkmate.onnxio.model import Model
from checkmate.onnxio.read import read_model
from checkmate.runtime.device import probe_device
from checkmate.runtime.optimize import optimize_model
from checkmate.runtime.protocol import Level, Provider


def optimize(
    model: Model, optimization: Optimization | None, provider: str, loss: str | None
) -> tuple[Model, Lineage]:
    """Return ``model`` as it is to be planned, and how it came about.

    ``optimization`` None: the default, or none, with a notice, where that is not possible. Raises
    `RunError` when what was asked for is not possible.
    """
    sha256 = digest_model(model)
    if optimization == "none":
        return model, Lineage(sha256)
    level: Level = optimization or DEFAULT_OPTIMIZATION
    try:
        found: Provider = "cpu" if provider == "cpu" else probe_device("auto").provider
        optimized = optimize_model(model, level, found, loss)
    except (RunError, InputError) as error:
        if optimization is not None:
            raise
        echo_note(f"note: {error.message}; it is planned as it is")
        return model, Lineage(sha256)
    echo_note(
        f"optimized ({level}) by onnxruntime {optimized.onnxruntime}:"
        f" {len(model.nodes)} ops became {len(optimized.model.nodes)}"
    )
    return optimized.model, Lineage(sha256, level, optimized.onnxruntime, found)


def is_optimized_already(path: Path, record: ScheduleRecord, loss: str | None) -> bool:
    """Return whether the model in ``path`` is the optimized graph that ``record`` is for."""
    if record.graph.lineage.optimization == "none" or find_dims(load_proto(path).graph):
        return False
    try:
        return digest_model(read_model(path, {}, loss)) == record.graph.sha256
    except InputError:
        return False
