"""Ops that read nothing: with all fences they run where the schedule has them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from checkmate.costs import unit_costs
from checkmate.onnxio.expand import expand
from checkmate.onnxio.read import read_model
from checkmate.onnxio.seeding import render_seeded
from checkmate.onnxio.write import render_model
from checkmate.problem import Problem
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.execute import RunOptions, run_model
from checkmate.runtime.protocol import Settings
from checkmate.simulate import simulate
from checkmate.trial.order import compare_computes
from checkmate.trial.rewriting import Rewriting
from default_runs import LEVELS, feeds_of, name_copies, rewrite, run, schedule_of
from onnx_models import deep_mlp, save
from trials import judge_trial, solve_file
from trials import run as run_trial

NOISY = """
noisy (float[64, 32] x) => (float[64, 32] y, double[8] z) {
    a = Exp(x)
    b = Neg(a)
    n = RandomUniform <shape = [64, 32], low = -1.0, seed = 3.0> ()
    c = Mul(b, n)
    d = Add(c, a)
    k = RandomNormal <shape = [64, 32], seed = 4.0> ()
    y = Add(d, k)
    z = RandomNormal <shape = [8], dtype = 11, seed = 5.0> ()
}
"""
ORDER = "a b n c a d k y z"


def noisy_mlp() -> str:
    """Return a training step with noise on gradients, each made just before it is used."""
    text = deep_mlp(4)
    for layer, kind in ((1, "RandomUniform"), (2, "RandomNormal")):
        made = f"dw{layer} = MatMul(t{layer}, g{layer})"
        drawn = f"n{layer} = {kind} <shape = [512, 64], seed = {layer}.0> ()"
        noised = f"m{layer} = Mul(n{layer}, g{layer}) dw{layer} = MatMul(t{layer}, m{layer})"
        assert made in text
        text = text.replace(made, f"{drawn} {noised}")
    return text


def test_noise_that_is_used_late_takes_no_memory_before(tmp_path: Path) -> None:
    solved = solve_file(save(tmp_path, noisy_mlp()), 101, dims={"N": 512}, strategy="keep-all")
    judgement = judge_trial(solved, run_trial(solved))
    assert judgement.failures == ()
    assert [row.order for row in judgement.rows if row.order] == ["as scheduled"] * 3
    assert {row.numbers for row in judgement.rows} == {"equal"}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("opset", [11, 13, 18])
def test_draws_keep_their_place_and_their_numbers(level: str, opset: int, tmp_path: Path) -> None:
    path = save(tmp_path, NOISY, opset=opset)
    feeds = feeds_of(path)
    expected = run(path.read_bytes(), feeds, tmp_path, "DISABLE_ALL")
    found = run(rewrite(path, ORDER, "all"), feeds, tmp_path, level)
    assert found.outputs == expected.outputs
    assert found.executed == name_copies(ORDER)


def test_a_draw_at_the_start_keeps_its_numbers(tmp_path: Path) -> None:
    path = save(tmp_path, NOISY)
    feeds = feeds_of(path)
    order = "z k n a b c d y"
    expected = run(path.read_bytes(), feeds, tmp_path, "DISABLE_ALL")
    found = run(rewrite(path, order, "all"), feeds, tmp_path)
    assert found.outputs == expected.outputs
    assert found.executed == name_copies(order)


def test_a_draw_takes_what_is_planned_to_the_byte(tmp_path: Path) -> None:
    model = read_model(save(tmp_path, NOISY), {})
    schedule = schedule_of(model, ORDER)
    problem = Problem(model.graph, unit_costs(model.graph))
    planned = simulate(*expand(problem, model, schedule, "all")).peak
    path = tmp_path / "fenced.onnx"
    path.write_bytes(render_model(model, schedule, path, "all"))
    options = RunOptions(Settings(threads=1), n_runs=2)
    taken = run_model(path, specify_inputs(model), options).run_nbytes
    assert taken == (planned.live_nbytes,) * 2


def test_a_draw_without_a_seed_gets_that_of_the_original(tmp_path: Path) -> None:
    path = save(tmp_path, NOISY.replace(", seed = 3.0", "").replace(", seed = 5.0", ""))
    model = read_model(path, {})
    fenced = onnx.load_from_string(rewrite(path, ORDER, "all"))
    feeds = feeds_of(path)
    first, second = (
        run(render_seeded(proto, path), feeds, tmp_path) for proto in (model.proto, fenced)
    )
    assert first.outputs == second.outputs


def test_a_draw_that_ran_early_is_told(tmp_path: Path) -> None:
    model = read_model(save(tmp_path, NOISY), {})
    rewriting = Rewriting(model, schedule_of(model, "a b n c d k y z"), "all")
    ops = {tensor.name: tensor.producer for tensor in model.graph.tensors}
    names = [model.graph.ops[ops[made] or 0].name for made in "nabcdkyz"]
    early = compare_computes(rewriting, tuple(names))
    assert {pair[1] for pair in early.misplaced} == {names[0]}
    # Without fences, none was promised another place.
    assert compare_computes(replace(rewriting, fences="none"), tuple(names)).misplaced == ()


def test_draws_of_later_runs_go_on_as_in_the_original(tmp_path: Path) -> None:
    path = save(tmp_path, NOISY)
    fenced = tmp_path / "fenced.onnx"
    fenced.write_bytes(rewrite(path, ORDER, "all"))
    feeds = feeds_of(path)
    runs = []
    for one in (path, fenced):
        session = onnxruntime.InferenceSession(one, providers=["CPUExecutionProvider"])
        runs.append([session.run(["y", "z"], feeds) for _ in range(3)])
    for first, second in zip(*runs, strict=True):
        for one, other in zip(first, second, strict=True):
            np.testing.assert_array_equal(one, other)
    assert not np.array_equal(runs[0][0][1], runs[0][1][1])
