"""The partial results of a fence that joins several sizes lie where they are predicted."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from checkmate.arena import find_arena_peak
from checkmate.costs import unit_costs
from checkmate.errors import OutOfMemoryError
from checkmate.liveness import insert_frees
from checkmate.onnxio.expand import expand
from checkmate.onnxio.read import read_model
from checkmate.onnxio.rewrite import rewrite_model
from checkmate.onnxio.storage import find_arena_rules
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


@pytest.mark.parametrize("seed", [4, 6, 9, 11])
def test_an_arena_has_room_for_them_and_none_to_spare(seed: int, tmp_path: Path) -> None:
    model = read_model(save(tmp_path, THREE_AT_ONCE), {})
    rules = find_arena_rules(model, "cpu")
    problem = Problem(model.graph, unit_costs(model.graph), rules)
    schedule = insert_frees(model.graph, draw_order(random.Random(seed), model))
    proto = rewrite_model(model, schedule, "all")
    assert any(node.op_type == "Max" and len(node.input) > 2 for node in proto.graph.node)
    expanded, run = expand(problem, model, schedule, "all")
    assert expanded.arena is not None
    needed_nbytes = find_arena_peak(expanded, run, expanded.arena).reserved_nbytes
    path = tmp_path / "rewritten.onnx"
    path.write_bytes(proto.SerializeToString())

    def complete(limit_nbytes: int) -> None:
        settings = Settings(threads=1, arena_limit_nbytes=limit_nbytes)
        run_model(path, specify_inputs(model), RunOptions(settings, n_runs=0, n_timed_runs=2))

    complete(needed_nbytes)
    with pytest.raises(OutOfMemoryError):
        complete(needed_nbytes - CHUNK_NBYTES)
