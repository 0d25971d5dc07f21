"""Half precision on the CPU, for which onnxruntime puts casts around most ops."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx
import pytest

from checkmate.onnxio.fence_maker import FenceMaker
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
    maker = FenceMaker(set(), 18, {"half": 2, "scalar": 0})
    for name in ("whole", "half", "scalar"):
        maker.measure(name)
    kinds = [node.op_type for node in maker.nodes]
    assert kinds == ["Size", "Constant", "Slice", "Cast", "Size", "Cast", "Size"]


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
