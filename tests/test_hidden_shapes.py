"""Tensors made in a constant shape, whose dead ones default options would keep for later ones."""

from __future__ import annotations

from pathlib import Path

from checkmate.graph import OpId
from checkmate.liveness import insert_frees
from checkmate.onnxio.read import read_model
from checkmate.onnxio.windows import Fences
from checkmate.onnxio.write import render_model
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.execute import RunOptions, run_model
from checkmate.runtime.protocol import Settings
from onnx_models import save

MIB = 2**20
RELAY = """
relay (float[1] x) => (float[1] z)
  <int64[1] short = {1048576}, int64[1] long = {2097152}, int64[1] axis = {0}> {
    a = Expand(x, short)
    p = ReduceSum <keepdims = 1> (a, axis)
    b = Expand(p, long)
    q = ReduceSum <keepdims = 1> (b, axis)
    c = Expand(q, short)
    z = ReduceSum <keepdims = 1> (c, axis)
}
"""
"""Three large tensors in turn, of 4, 8 and 4 MiB."""


def find_peak_nbytes(folder: Path, fences: Fences) -> int:
    """Return the most that a run under default options takes."""
    model = read_model(save(folder, RELAY), {})
    schedule = insert_frees(model.graph, [OpId(k) for k in range(len(model.graph.ops))])
    path = folder / "fenced.onnx"
    path.write_bytes(render_model(model, schedule, path, fences))
    settings = Settings(threads=1, manner="default-no-pattern")
    result = run_model(path, specify_inputs(model), RunOptions(settings))
    return max(result.run_nbytes)


def test_all_fences_leave_no_shape_that_is_known_before_the_run(tmp_path: Path) -> None:
    assert find_peak_nbytes(tmp_path, "all") < 8 * MIB + 10_000
    # Without them, the first tensor is kept for the third.
    assert find_peak_nbytes(tmp_path, "none") > 12 * MIB
