"""What fences themselves take, to the byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkmate.costs import unit_costs
from checkmate.onnxio.expand import expand
from checkmate.onnxio.read import read_model
from checkmate.onnxio.storage import find_arena_rules
from checkmate.onnxio.write import render_model
from checkmate.problem import Problem
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.execute import RunOptions, run_model
from checkmate.runtime.protocol import Settings
from checkmate.simulate import simulate
from default_runs import schedule_of
from onnx_models import save

ENDS = {"b": "Neg", "c": "Sin", "d": "Cos", "e": "Sqrt", "f": "Log"}


def tiny(n_ends: int) -> tuple[str, str]:
    """Return a model of single numbers, and an order with a recompute behind ``n_ends`` sinks."""
    ends = list(ENDS)[:n_ends]
    made = " ".join(f"{name} = {ENDS[name]} (a)" for name in ends)
    text = (
        f"tiny (float[1] x) => (float[1] y) {{ a = Exp(x) {made} y = Sum(a, {', '.join(ends)}) }}"
    )
    return text, f"a {' '.join(ends)} a y"


@pytest.mark.parametrize("n_ends", [1, 2, 3, 4, 5])
def test_a_fence_that_waits_for_many_takes_what_is_planned(n_ends: int, tmp_path: Path) -> None:
    text, order = tiny(n_ends)
    model = read_model(save(tmp_path, text), {})
    schedule = schedule_of(model, order)
    rules = find_arena_rules(model, "cpu")
    problem = Problem(model.graph, unit_costs(model.graph), rules)
    expanded, run = expand(problem, model, schedule, "run")
    peak = simulate(expanded, run).peak
    path = tmp_path / "fenced.onnx"
    path.write_bytes(render_model(model, schedule, path, "run"))
    taken = run_model(path, specify_inputs(model), RunOptions(Settings(threads=1))).run_nbytes
    assert taken == (peak.live_nbytes + peak.workspace_nbytes,)
    # The token of one or two is made at once; each further size makes a partial result.
    assert peak.workspace_nbytes == (8 if n_ends > 2 else 0)
    assert expanded.arena is not None
    later = [expanded.arena.n_later[op] for op in expanded.arena.partial - {len(run.order) - 1}]
    assert later == ([n_ends - 3] if n_ends > 2 else [])
