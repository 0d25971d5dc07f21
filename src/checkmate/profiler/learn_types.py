"""The types of tensors that no rule tells, taken from one run."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from checkmate.errors import RunError
from checkmate.files import write_files
from checkmate.onnxio.cutting import render_whole
from checkmate.onnxio.load import has_external_data
from checkmate.onnxio.model import TensorType
from checkmate.onnxio.probe import Probe, build_probe
from checkmate.runtime.execute import RunOptions, run_model
from checkmate.runtime.protocol import TensorSpec


def learn_types(path: Path, dims: Mapping[str, int]) -> dict[str, TensorType]:
    """Return the types of tensors of the model in ``path`` that shape inference does not tell.

    Inputs are drawn; where a shape depends on their values, it is the one of this run. Raises
    `RunError` when onnxruntime cannot run the model.
    """
    probe = build_probe(path, dims)
    if not probe.names:
        return {}
    # Weights in other files are found from the folder of the model alone.
    folder = path.resolve().parent if has_external_data(probe.proto) else None
    with tempfile.TemporaryDirectory(prefix=".checkmate-") as outputs:
        file = (folder or Path(outputs)) / f"{Path(outputs).name}.onnx"
        try:
            write_files({file: render_whole(probe.proto, path)})
            return _run(probe, file, Path(outputs) / "types.npz")
        except RunError as error:
            raise RunError(
                f"no shapes from a run of {path.name!r}: {error.message}", hint=error.hint
            ) from error
        finally:
            file.unlink(missing_ok=True)


def _run(probe: Probe, file: Path, outputs: Path) -> dict[str, TensorType]:
    given = {tensor.name for tensor in probe.proto.graph.initializer}
    specs = [
        TensorSpec(name, known.elem_type, known.shape)
        for name, known in probe.inputs.items()
        if name not in given
    ]
    result = run_model(file, specs, RunOptions(outputs=outputs, meter="none"))
    assert result.outputs is not None
    return probe.read(result.outputs.read_all())
