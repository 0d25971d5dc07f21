"""What the ops of a whole model cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from checkmate.costs import Origin
from checkmate.errors import RunError
from checkmate.onnxio.model import Model
from checkmate.onnxio.read import read_model
from checkmate.profiler.profile import (
    Profile,
    ProfileOptions,
    Progress,
    measure_whole_graph_ns,
    profile_model,
)
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.device import Device
from checkmate.runtime.execute import RunOptions, run_model
from onnx_models import TRAINING_MLP, save

DEVICE = Device("cpu", "a processor", 2**34, "1.31.1")
QUICK = ProfileOptions(threads=1, max_runs=1, max_ns=0, among=False)


def profile(model: Model, options: ProfileOptions = QUICK) -> Profile:
    return profile_model(model, DEVICE, options, lambda _: None)


def test_each_kind_of_op_is_measured_once_and_each_op_has_its_cost(tmp_path: Path) -> None:
    model = read_model(save(tmp_path, TRAINING_MLP), {"N": 8})
    steps: list[Progress] = []
    found = profile_model(model, DEVICE, QUICK, steps.append)
    names = [op.name for op in model.graph.ops]
    cost = dict(zip(names, found.costs.time_ns, strict=True))
    assert found.costs.origin == Origin("profile", "cpu", "a processor", "1.31.1")
    assert min(found.costs.time_ns) > 0
    assert cost["MatMul_0"] == cost["MatMul_2"]
    assert found.n_signatures < len(names)
    assert [step.n_done for step in steps] == list(range(1, found.n_signatures + 1))
    assert {step.n_all for step in steps} == {found.n_signatures}
    assert steps[0].op == names[0]
    assert found.estimated == ()
    assert found.n_remembered == 0


def test_a_second_profile_runs_nothing(tmp_path: Path) -> None:
    model = read_model(save(tmp_path, TRAINING_MLP), {"N": 8})
    options = replace(QUICK, cache_folder=tmp_path / "cache")
    first, second = profile(model, options), profile(model, options)
    assert second.n_remembered == second.n_signatures == first.n_signatures
    assert second.costs == first.costs


def test_a_damaged_entry_is_measured_again(tmp_path: Path) -> None:
    model = read_model(save(tmp_path, TRAINING_MLP), {"N": 8})
    options = replace(QUICK, cache_folder=tmp_path / "cache")
    profile(model, options)
    path = sorted((tmp_path / "cache").rglob("*.json"))[0]
    path.write_text(path.read_text().replace('"time_ns": ', '"time_ns": 9'))
    again = profile(model, options)
    assert again.n_remembered == again.n_signatures - 1
    assert profile(model, options).n_remembered == again.n_signatures


LOOKALIKES = """
g (float[64, 64] x, bool c) => (float[64, 64] y) {
    a = MatMul(x, x)
    [choice] b = If (c)
      <then_branch = t () => (float[64, 64] p) { p = Exp(a) },
       else_branch = e () => (float[64, 64] q) { q = Neg(a) }>
    y = MatMul(b, x)
}
"""


def test_an_op_that_cannot_run_alone_is_estimated_and_named(tmp_path: Path) -> None:
    found = profile(read_model(save(tmp_path, LOOKALIKES), {}))
    assert [estimated.op for estimated in found.estimated] == ["choice"]
    assert "subgraph" in found.estimated[0].reason
    assert found.costs.time_ns[1] > 0


def test_an_op_larger_than_the_memory_is_estimated_from_its_kind_and_named(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        "g (float[512, 512] x, float[4194304, 524288] v)"
        " => (float[512, 512] y, float[4194304, 524288] z) { y = Exp(x) [huge] z = Exp(v) }",
    )
    found = profile(read_model(path, {}))
    assert [estimated.op for estimated in found.estimated] == ["huge"]
    assert "16.00 TiB" in found.estimated[0].reason
    # Two million times the elements, but not two million times the launch.
    ratio = found.costs.time_ns[1] / found.costs.time_ns[0]
    assert 2**22 < ratio < 2**23.1


def test_a_model_of_which_nothing_can_run_is_an_error(tmp_path: Path) -> None:
    path = save(tmp_path, "g (float[2] x) => (float[2] y) { y = Exp(x) }")
    model = read_model(path, {})
    model.nodes[0].op_type = "NoSuchOp"
    with pytest.raises(RunError, match="no op could be measured: "):
        profile(model)


def test_the_whole_graph_is_timed(tmp_path: Path) -> None:
    model = read_model(save(tmp_path, TRAINING_MLP), {"N": 8})
    assert measure_whole_graph_ns(model, DEVICE, replace(QUICK, max_runs=3)) > 0


def test_what_an_optimizer_takes_the_root_of_is_above_zero(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        """
        adam (float[9, 9] w, float[9, 9] g, float[9, 9] v) => (float[9, 9] new)
          <float b = {0.9}, float c = {0.1}, float e = {1e-8}> {
            bv = Mul(v, b)
            gg = Mul(g, g)
            cg = Mul(gg, c)
            nv = Add(bv, cg)
            root = Sqrt(nv)
            safe = Add(root, e)
            step = Div(g, safe)
            new = Sub(w, step)
        }
        """,
    )
    specs = specify_inputs(read_model(path, {}))
    assert {spec.name: spec.positive for spec in specs}["v"]
    assert not {spec.name: spec.positive for spec in specs}["w"]
    result = run_model(path, specs, RunOptions(outputs=tmp_path / "out.npz"))
    assert result.outputs is not None
    assert np.isfinite(result.outputs.read("new")).all()
