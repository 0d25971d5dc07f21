"""What may not happen twice, and what may not differ between runs: shown by running."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from builders import op, problem
from checkmate.engine.solve import solve
from checkmate.errors import InfeasibleError, NoneInSpaceError
from checkmate.graph import OpId
from checkmate.liveness import insert_frees
from checkmate.onnxio.expand import expand
from checkmate.onnxio.write import render_model
from checkmate.problem import Problem
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.execute import RunOptions, run_model
from checkmate.runtime.protocol import Settings
from checkmate.schedule import count_recomputes
from checkmate.search.finding import Limits
from checkmate.simulate import simulate
from checkmate.trial.rewriting import Rewriting
from onnx_models import residual_mlp, save
from trials import Solved, judge_trial, run, solve_file

LAYERS = range(1, 5)


def dropout_mlp(seed: str = "") -> str:
    """Return forward and backward of layers with Dropout between them; batch N."""
    forward, backward = [], []
    for i in LAYERS:
        below = f"y{i - 1}" if i > 1 else "x"
        forward += [f"h{i} = MatMul({below}, w{i})", f"a{i} = Tanh(h{i})"]
        forward += [f"y{i}, k{i} = Dropout {seed} (a{i}, half, yes)"]
    for i in reversed(LAYERS):
        below = f"y{i - 1}" if i > 1 else "x"
        backward += [f"c{i} = Cast <to = 1> (k{i})", f"m{i} = Mul(c{i}, two)"]
        backward += [f"s{i} = Mul(d{i}, m{i})", f"q{i} = Mul(a{i}, a{i})", f"p{i} = Sub(one, q{i})"]
        backward += [f"g{i} = Mul(s{i}, p{i})", f"t{i} = Transpose <perm = [1, 0]> ({below})"]
        backward += [f"dw{i} = MatMul(t{i}, g{i})"]
        if i > 1:
            backward += [
                f"u{i} = Transpose <perm = [1, 0]> (w{i})",
                f"d{i - 1} = MatMul(g{i}, u{i})",
            ]
    top = LAYERS[-1]
    forward += [f"loss = ReduceSum <keepdims = 0> (y{top})", f"shape = Shape(y{top})"]
    forward += [f"d{top} = ConstantOfShape <value = float[1] {{1.0}}> (shape)"]
    given = ", ".join(["float[N, 64] x", *(f"float[64, 64] w{i}" for i in LAYERS)])
    made = ", ".join(["float loss", *(f"float[64, 64] dw{i}" for i in LAYERS)])
    known = "float one = {1.0}, float two = {2.0}, float half = {0.5}, bool yes = {1}"
    steps = "\n".join([*forward, *backward])
    return f"drop ({given}) => ({made}) <{known}> {{ {steps} }}"


def test_a_dropout_without_a_seed_runs_once_and_gradients_stay(tmp_path: Path) -> None:
    path = save(tmp_path, dropout_mlp())
    found = solve_file(path, 70, dims={"N": 512})
    with pytest.raises(NoneInSpaceError, match="no frontier-advancing schedule"):
        solve_file(path, 65, dims={"N": 512})
    counts = Counter(found.plan.schedule.order)
    dropouts = [
        i for i, node in enumerate(found.rewriting.model.nodes) if node.op_type == "Dropout"
    ]
    assert len(dropouts) == len(LAYERS)
    assert [counts[OpId(i)] for i in dropouts] == [1] * len(LAYERS)
    assert count_recomputes(found.plan.schedule.order) > 0
    judgement = judge_trial(found, run(found, ("scheduled", "default")))
    assert judgement.failures == ()
    assert {row.numbers for row in judgement.rows if row.run == 1} == {"equal"}


def compute_again(solved: Solved, op_type: str, before: str) -> Solved:
    """Return ``solved`` in file order, with the first ``op_type`` again before op ``before``."""
    model = solved.rewriting.model
    order = [OpId(i) for i in range(len(model.nodes))]
    again = next(i for i in order if model.nodes[i].op_type == op_type)
    position = next(i for i in order if before in model.nodes[i].output)
    order.insert(position, again)
    schedule = insert_frees(model.graph, order)
    return replace(solved, rewriting=Rewriting(model, schedule, "none"))


def test_a_dropout_that_runs_twice_is_found_by_its_numbers(tmp_path: Path) -> None:
    found = solve_file(save(tmp_path, dropout_mlp()), 100, fences="none", dims={"N": 512})
    twice = compute_again(found, "Dropout", "c1")
    judgement = judge_trial(twice, run(twice, ("scheduled",)), 2**40)
    assert judgement.rows[0].numbers == "different"
    assert "outputs differ; the first is 'dw1'" in judgement.failures[0]


NORMS = """
norms (float[N, 64] x, float[64] gamma, float[64] beta, float[64] mean0, float[64] var0)
  => (float loss, float[64] mean1, float[64] var1, float[64] dgamma) {
    [norm] y, mean1, var1 = BatchNormalization <training_mode = 1, momentum = 0.9>
        (x, gamma, beta, mean0, var0)
    [a] a = Tanh(y)
    [b] b = Exp(a)
    [e] e = Sin(b)
    [f] f = Cos(e)
    [loss] loss = ReduceSum <keepdims = 0> (f)
    [c] c = Mul(f, e)
    [g] g = Mul(c, b)
    [h] h = Mul(g, a)
    [axes] axes = Constant <value = int64[1] {0}> ()
    [dgamma] dgamma = ReduceSum <keepdims = 0> (h, axes)
}
"""


def test_running_statistics_come_from_one_norm(tmp_path: Path) -> None:
    found = solve_file(save(tmp_path, NORMS, opset=15), 92, dims={"N": 512})
    order = found.plan.schedule.order
    assert not found.source.problem.graph.ops[0].recomputable
    assert Counter(order)[OpId(0)] == 1
    assert count_recomputes(order) > 0
    judgement = judge_trial(found, run(found, ("scheduled",)))
    assert judgement.failures == ()
    assert judgement.rows[0].numbers == "equal"


def test_a_norm_that_runs_twice_is_found_by_its_statistics(tmp_path: Path) -> None:
    found = solve_file(save(tmp_path, NORMS, opset=15), 100, fences="none", dims={"N": 512})
    twice = compute_again(found, "BatchNormalization", "dgamma")
    judgement = judge_trial(twice, run(twice, ("scheduled",)), 2**40)
    assert judgement.rows[0].numbers == "different"
    assert "2 outputs differ; the first is 'mean1'" in judgement.failures[0]


PERCENTS = (90, 75, 60, 45, 30, 20)


def test_every_budget_is_kept_and_less_memory_is_never_faster(tmp_path: Path) -> None:
    path = save(tmp_path, residual_mlp(32))
    peaks, times, budgets = [], [], []
    for percent in PERCENTS:
        found = solve_file(path, percent, dims={"N": 256}, strategy="greedy")
        predicted, ran = measure(found, tmp_path / f"{percent}.onnx")
        assert ran == predicted
        peaks.append(ran)
        budgets.append(found.record.budget_nbytes)
        times.append(found.plan.time_ns)
    assert all(peak <= budget for peak, budget in zip(peaks, budgets, strict=True))
    assert times == sorted(times)
    assert times[0] < times[-1]


def measure(solved: Solved, path: Path) -> tuple[int, int]:
    """Return the peak that is predicted with fences, and that of a run."""
    r = solved.rewriting
    expanded, steps = expand(solved.source.problem, r.model, r.schedule, r.fences)
    path.write_bytes(render_model(r.model, r.schedule, path, r.fences))
    weights = [t.nbytes for t in r.model.graph.tensors if t.name == "one"]
    options = RunOptions(Settings(threads=1), initializers_nbytes=sum(weights))
    measured = run_model(path, specify_inputs(r.model), options)
    assert measured.peak_nbytes is not None
    return simulate(expanded, steps).peak.nbytes, measured.peak_nbytes


@pytest.mark.parametrize("budget_nbytes", [2, 3])
def test_a_budget_of_exactly_one_peak_is_reached_and_never_passed(budget_nbytes: int) -> None:
    three = problem(op("a", nbytes=1), op("b", "a", nbytes=1), op("c", "a b", nbytes=1),
                    outputs="c")  # fmt: skip
    exact = solve_or_refuse(three, budget_nbytes)
    assert exact == {2: None, 3: 3}[budget_nbytes]


def solve_or_refuse(small: Problem, budget_nbytes: int) -> int | None:
    try:
        return solve(small, budget_nbytes, "auto", Limits(gap=0.0)).peak.nbytes
    except InfeasibleError:
        return None
