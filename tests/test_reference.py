"""Rewritten graphs against gradients that PyTorch computed for the same inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from checkmate.engine.solve import run_baseline, solve
from checkmate.onnxio.read import read_model
from checkmate.onnxio.write import render_model
from checkmate.problem import Problem
from checkmate.profiler.flops import estimate_costs
from checkmate.schedule import count_recomputes
from checkmate.search.finding import Limits
from onnx_models import GRAPHS

REFERENCES = GRAPHS.parent.parent / "shared" / "graphs" / "ref"
LARGEST_ERROR = 1e-3


@pytest.mark.parametrize("name", ["vgg16", "mobilenetv1", "resnet50", "unet", "gpt2"])
def test_gradients_of_the_rewritten_graph_are_those_of_torch(name: str, tmp_path: Path) -> None:
    if not REFERENCES.is_dir():
        pytest.skip(f"needs the torch gradients in {REFERENCES.name}/, kept outside the project")
    reference = np.load(REFERENCES / f"{name}-tiny-b4.npz", allow_pickle=False)
    model = read_model(GRAPHS / f"{name}-tiny-bN.onnx", {"N": 4})
    problem = Problem(model.graph, estimate_costs(model))
    budget_nbytes = int(run_baseline(problem).peak.nbytes * 0.85)
    plan = solve(problem, budget_nbytes, "greedy", Limits())
    assert count_recomputes(plan.schedule.order) > 0
    content = render_model(model, plan.schedule, tmp_path / "out.onnx")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    feeds = {item.name: reference[f"in/{item.name}"] for item in session.get_inputs()}
    names = [item.name for item in session.get_outputs()]
    expected = {n: reference[f"out/{n}"] for n in names if f"out/{n}" in reference.files}
    made = dict(zip(names, session.run(names, feeds), strict=True))
    largest = max(float(np.abs(value).max()) for value in expected.values())
    errors = {
        n: float(np.abs(made[n] - value).max() / (np.abs(value).max() + 1e-3 * largest))
        for n, value in expected.items()
    }
    assert len(errors) > len(names) // 2
    assert max(errors.values()) < LARGEST_ERROR
