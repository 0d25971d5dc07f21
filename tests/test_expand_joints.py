"""A run behind fences needs the arena that is predicted, and hardly less."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import onnx
import pytest
from onnx import helper

from checkmate.arena import find_arena_peak
from checkmate.costs import unit_costs
from checkmate.errors import OutOfMemoryError
from checkmate.graph import OpId
from checkmate.liveness import insert_frees
from checkmate.onnxio.expand import expand
from checkmate.onnxio.model import Model
from checkmate.onnxio.read import read_model
from checkmate.onnxio.rewrite import rewrite_model
from checkmate.onnxio.storage import find_arena_rules
from checkmate.onnxio.windows import Fences
from checkmate.placement import CHUNK_NBYTES
from checkmate.problem import Problem
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.execute import RunOptions, run_model
from checkmate.runtime.protocol import Settings
from onnx_models import save
from random_orders import draw_order

THREE_AT_ONCE = """joint (float[6] x) => (float[1] z)
{
    p, q, r = Split <axis = 0, num_outputs = 3> (x)
    a = Exp(p)
    b = Exp(q)
    c = Exp(r)
    d = Add(a, b)
    e = Add(d, c)
    z = ReduceSum(e)
}"""


KNOWN_AGAIN = """known (float[16, 64] x) => (float[1] u, float[1] v, float[1] w, float[1] m)
{
    a = Exp(x)
    b = Mul(a, a)
    c = Add(a, b)
    d = Tanh(c)
    u = ReduceSum(d)
    m = ReduceMax(d)
    v = ReduceSum(a)
    w = ReduceSum(b)
}"""
"""Of the copy of b, behind a fence, the shape is unknown, that of c follows from a again."""
AGAIN = (0, 1, 2, 3, 4, 1, 2, 3, 5, 6, 7)


BEYOND = KNOWN_AGAIN.replace("Mul(a, a)", "com.microsoft.Gelu(a)").replace("Add(a, b)", "Neg(b)")
"""onnx cannot tell the shapes of b and c; onnxruntime can."""


def write(
    folder: Path, body: str, order: Sequence[OpId], fences: Fences
) -> tuple[Path, Model, int]:
    """Return a rewritten model, its original, and what its arena needs."""
    given = save(folder, body)
    if "com.microsoft" in body:
        proto = onnx.load(given)
        proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
        onnx.save(proto, given)
    model = read_model(given, {})
    rules = find_arena_rules(model, "cpu")
    problem = Problem(model.graph, unit_costs(model.graph), rules)
    schedule = insert_frees(model.graph, order)
    expanded, run = expand(problem, model, schedule, fences)
    assert expanded.arena is not None
    path = folder / "rewritten.onnx"
    path.write_bytes(rewrite_model(model, schedule, fences).SerializeToString())
    return path, model, find_arena_peak(expanded, run, expanded.arena).reserved_nbytes


def complete(path: Path, model: Model, limit_nbytes: int) -> None:
    settings = Settings(threads=1, arena_limit_nbytes=limit_nbytes)
    run_model(path, specify_inputs(model), RunOptions(settings, n_runs=0, n_timed_runs=2))


@pytest.mark.parametrize("seed", [4, 6, 9, 11])
def test_an_arena_has_room_for_partial_results_and_none_to_spare(seed: int, tmp_path: Path) -> None:
    drawn = read_model(save(tmp_path, THREE_AT_ONCE), {})
    order = draw_order(random.Random(seed), drawn)
    path, model, needed_nbytes = write(tmp_path, THREE_AT_ONCE, order, "all")
    nodes = onnx.load(path).graph.node
    assert any(node.op_type == "Max" and len(node.input) > 2 for node in nodes)
    complete(path, model, needed_nbytes)
    with pytest.raises(OutOfMemoryError):
        complete(path, model, needed_nbytes - CHUNK_NBYTES)


@pytest.mark.parametrize("fences", ["none", "run", "all"])
@pytest.mark.parametrize("body", [KNOWN_AGAIN, BEYOND], ids=["known again", "beyond"])
def test_what_runs_in_place_is_known(body: str, fences: Fences, tmp_path: Path) -> None:
    order = tuple(map(OpId, AGAIN))
    path, model, needed_nbytes = write(tmp_path, body, order, fences)
    complete(path, model, needed_nbytes)
    # With all fences, what a session copies takes up to a chunk less.
    spare_nbytes = CHUNK_NBYTES if fences == "all" else 0
    with pytest.raises(OutOfMemoryError):
        complete(path, model, needed_nbytes - spare_nbytes - CHUNK_NBYTES)
