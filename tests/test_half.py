"""Half precision on the CPU, for which onnxruntime puts casts around most ops."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from checkmate.onnxio.fence_maker import FenceMaker
from checkmate.onnxio.fences import find_obstacle
from checkmate.onnxio.model import TensorType
from checkmate.onnxio.read import read_model
from checkmate.onnxio.windows import Fences
from checkmate.onnxio.write import place_planned
from checkmate.runtime.optimize import optimize_model
from default_runs import count_ops, rewrite
from onnx_models import save
from trials import judge_trial, run, solve_file

MIXED = """training (float[64, 64] x, float[64, 64] w, float[64, 64] v) => (float[64, 64] loss) {
a = Cast <to = 10> (x) b = Cast <to = 10> (w) c = MatMul(a, b) d = Relu(c) e = Transpose(d)
e2 = Add(e, a) f = MatMul(e2, b) g = Cast <to = 1> (f) h = Add(g, v) i = Cast <to = 10> (h)
j = Mul(i, d) loss = Cast <to = 1> (j) }"""
KEPT = """training (float16[64, 64] x) => (float16[64, 64] y) {
a = Transpose(x) b = Transpose(a) y = Transpose(b) }"""
HALF = TensorType(onnx.TensorProto.FLOAT16, (64, 64))
LEVELS = ("DISABLE_ALL", "ENABLE_ALL")


@pytest.mark.parametrize("level", LEVELS)
def test_a_session_changes_nothing_of_what_is_planned(tmp_path: Path, level: str) -> None:
    model = read_model(save(tmp_path, MIXED), {})
    optimized = optimize_model(model, "extended", "cpu").model
    planned_ops = Counter(node.op_type for node in optimized.nodes)
    assert planned_ops != Counter(node.op_type for node in model.nodes)
    with place_planned(optimized) as planned:
        assert count_ops(planned, level, tmp_path) == planned_ops


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("fences", ["run", "all"])
def test_no_fence_makes_onnxruntime_compute_in_float32(
    tmp_path: Path, fences: Fences, level: str
) -> None:
    path = save(tmp_path, KEPT)
    content = rewrite(path, "a b a b y", fences)
    in_fences = sum(node.op_type == "Cast" for node in onnx.load_from_string(content).graph.node)
    assert count_ops(content, level, tmp_path)["Cast"] <= in_fences


def test_the_size_of_a_half_is_taken_of_nothing() -> None:
    maker = FenceMaker(set(), 18, {"half": HALF, "scalar": replace(HALF, shape=())})
    for name in ("whole", "half", "scalar"):
        maker.measure(name)
    kinds = [node.op_type for node in maker.nodes]
    assert kinds == ["Size", "Constant", "Slice", "IsNaN", "Size", "IsNaN", "Size"]


def test_the_plan_of_mixed_precision_is_the_run(tmp_path: Path) -> None:
    layers = " ".join(
        f"m{i} = MatMul(h{i - 1}, b) h{i} = Relu(m{i}) f{i} = Cast <to = 1> (h{i})"
        f" e{i} = Exp(f{i}) s{i} = ReduceSum <keepdims = 0> (e{i})"
        for i in range(1, 5)
    )
    path = save(
        tmp_path,
        f"""training (float[64, 64] x, float[64, 64] w) => (float loss, float[64, 64] y) {{
        h0 = Cast <to = 10> (x) b = Cast <to = 10> (w) {layers}
        p = Mul(f1, f2) q = Mul(p, f3) y = Mul(q, f4)
        t = Add(s1, s2) u = Add(t, s3) loss = Add(u, s4) }}""",
    )
    solved = solve_file(path, 75, optimize="extended")
    assert len(solved.plan.schedule.order) > len(solved.source.problem.graph.ops)
    judgement = judge_trial(solved, run(solved, ("scheduled", "default-no-pattern")))
    assert judgement.failures == ()


def test_without_the_casts_of_onnxruntime_a_model_of_halves_has_no_fences(tmp_path: Path) -> None:
    model = read_model(save(tmp_path, MIXED), {})
    assert "casts" in str(find_obstacle(model, "cpu"))
    assert find_obstacle(model, "cuda") is None
    assert find_obstacle(optimize_model(model, "extended", "cpu").model, "cpu") is None


def test_a_loss_of_half_precision_holds_its_fence(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        """training (float16[32, 32] x, float16[32, 32] w) => (float16 loss, float16[32, 32] g) {
        a = MatMul(x, w) b = Tanh(a) loss = ReduceMean <keepdims = 0> (b) c = Mul(b, b)
        d = Sub(x, c) e = Transpose <perm = [1, 0]> (x) g = MatMul(e, d) }""",
    )
    solved = solve_file(path, 110, optimize="extended")
    assert solved.rewriting.fences == "all"
    judgement = judge_trial(solved, run(solved, ("scheduled", "default-no-pattern")), 10**6)
    assert judgement.failures == ()
