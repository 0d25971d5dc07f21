"""If, Loop and Scan: one op, whose bodies say what it makes and what it takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from checkmate.arena import find_arena_peak
from checkmate.errors import InputError
from checkmate.graph import OpId
from checkmate.liveness import insert_frees
from checkmate.onnxio.body_memory import count_workspace_nbytes
from checkmate.onnxio.read import read_model
from checkmate.onnxio.storage import find_arena_rules
from checkmate.problem import Problem
from checkmate.profiler.flops import ACCELERATOR, estimate_costs
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.execute import RunOptions, run_model
from checkmate.runtime.limited import LimitedRuns
from checkmate.runtime.protocol import Settings
from checkmate.simulate import simulate
from default_runs import feeds_of, rewrite
from onnx_models import save
from trials import solve_file

ACCUMULATION = """
g (float[6, 100, 64] x, float[64, 64] w, float[64, 64] start)
  => (float[64, 64] y, float[6, 64] sums) <int64 n = {6}> {
    y, sums = Loop (n, "", start) <body = b (int64 i, bool c, float[64, 64] t)
      => (bool d, float[64, 64] u, float[64] s) {
        part = Gather <axis = 0> (x, i)
        h = MatMul(part, w)
        e = Exp(h)
        et = Transpose <perm = [1, 0]> (e)
        g = MatMul(et, part)
        u = Add(t, g)
        axis = Constant <value = int64[1] {0}> ()
        s = ReduceSum <keepdims = 0> (u, axis)
        d = Identity(c)
    }>
}"""


def test_a_loop_takes_what_a_turn_holds_and_what_turns_hand_on(tmp_path: Path) -> None:
    model = read_model(save(tmp_path, ACCUMULATION), {})
    part = e = et = 100 * 64 * 4
    # What is carried and the sums so far; then a transposed copy beside both factors.
    # Number of the turn and condition take a chunk each.
    held = 64 * 64 * 4 + 6 * 64 * 4 + 2 * 256
    assert count_workspace_nbytes(model.bodies["y"]) == held + part + e + et


def test_the_peak_of_a_loop_is_close_to_the_measured_one(tmp_path: Path) -> None:
    path = save(tmp_path, ACCUMULATION)
    model = read_model(path, {})
    order = [OpId(i) for i in range(len(model.graph.ops))]
    costs = estimate_costs(model)
    predicted = simulate(Problem(model.graph, costs), insert_frees(model.graph, order)).peak
    measured = run_model(path, specify_inputs(model), RunOptions()).peak_nbytes
    assert measured is not None
    assert 0.9 * measured <= predicted.nbytes <= 1.1 * measured


def test_a_loop_of_small_tensors_runs_in_the_arena_that_is_planned(tmp_path: Path) -> None:
    text = ACCUMULATION.replace("100, 64", "4, 5").replace("64", "5")
    solved = solve_file(save(tmp_path, text.replace("int5", "int64")), 200, fences="none")
    model = solved.rewriting.model
    problem = Problem(model.graph, estimate_costs(model), find_arena_rules(model, "cpu"))
    assert problem.arena is not None
    limit_nbytes = find_arena_peak(problem, solved.plan.schedule, problem.arena).reserved_nbytes
    limited = Settings(threads=1, arena_limit_nbytes=limit_nbytes)
    path = save(tmp_path, text.replace("int5", "int64"))
    with LimitedRuns(specify_inputs(model), Settings(threads=1)) as runs:
        assert runs.find_refusal(path, limited) is None


def test_a_loop_takes_the_time_of_all_its_turns(tmp_path: Path) -> None:
    text = """g (float[4] s, float[3, 4] x) => (float[4] y) {{
        y = Scan <num_scan_inputs = 1, body = b (float[4] t, float[4] r)
          => (float[4] u) {{ {} }}> (s, x)
    }}"""
    one = estimate_costs(read_model(save(tmp_path, text.format("u = Add(t, r)")), {}))
    two = estimate_costs(read_model(save(tmp_path, text.format("a = Exp(r) u = Add(t, a)")), {}))
    assert one.time_ns == (ACCELERATOR.launch_ns * (1 + 3),)
    assert two.time_ns == (ACCELERATOR.launch_ns * (1 + 3 * 2),)


def test_a_branch_that_is_known_to_be_taken_says_what_is_made(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        """g (float[4] x) => (float[N] y) <bool c = {0}> {
            y = If (c) <
                then_branch = t () => (float[2] p) { p = Slice(x, zero, two) },
                else_branch = e () => (float[4] q) { q = Exp(x) }
            >
            two = Constant <value = int64[1] {2}> ()
            zero = Constant <value = int64[1] {0}> ()
        }""",
    )
    assert read_model(path, {}).types["y"].shape == (4,)


GROWING = """
g (float[1] s) => (float[N] y) <int64 n = {3}> {
    y = Loop (n, "", s) <body = b (int64 i, bool c, float[M] t) => (bool d, float[K] u) {
        u = Concat <axis = 0> (t, t)
        d = Identity(c)
    }>
}"""
GATHERING = """
g (float[4] s, int64 n) => (float[N, 4] y) {
    z, y = Loop (n, "", s) <body = b (int64 i, bool c, float[4] t)
      => (bool d, float[4] u, float[4] v) { u = Exp(t) v = Sqrt(t) d = Identity(c) }>
}"""
DIFFERING = """
g (bool c, float[4] x) => (float[N] y) {
    y = If (c) <
        then_branch = t () => (float[8] p) { p = Concat <axis = 0> (x, x) },
        else_branch = e () => (float[4] q) { q = Exp(x) }
    >
}"""
UNKNOWN_WITHIN = """
g (bool c, float[4] x) => (float[4] y) {
    y = If (c) <
        then_branch = t () => (float[4] p) { i = NonZero(x) k = Cast <to = 1> (i) p = Add(x, k) },
        else_branch = e () => (float[4] q) { q = Exp(x) }
    >
}"""


MISCOUNTED = """
g (float[4] s, float[3, 4] x) => (float[4] y, float[3, 4] all) {
    y, all = Scan <num_scan_inputs = 1, scan_output_axes = [0, 0], body = b (float[4] t, float[4] r)
      => (float[4] u, float[4] v) { u = Add(t, r) v = Exp(u) }> (s, x)
}"""
SCALAR = """
g (float[4] s, float x) => (float[4] y) {
    y = Scan <num_scan_inputs = 1, body = b (float[4] t, float r) => (float[4] u) { u = Add(t, r) }>
        (s, x)
}"""
DANGLING = """
g (bool c, float[4] x) => (float[4] y) {
    y = If (c) <
        then_branch = t () => (float[4] p) { p = Exp(x) },
        else_branch = e () => (float[4] nowhere) { q = Exp(x) }
    >
}"""


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (MISCOUNTED, "shapes do not fit together at op Scan"),
        (SCALAR, "shapes do not fit together at op Scan"),
        (DANGLING, "reads 'nowhere', which nothing makes"),
        (GROWING, r"carries a tensor of shape \[1\], of which its body makes 'u' of shape \[2\]"),
        (GATHERING, "gathers a result of each turn, and the number of turns depends on data"),
        (DIFFERING, r"branches of op If .* different tensors, of shape \[8\] and \[4\]"),
        (UNKNOWN_WITHIN, r"tensor 'i', made by NonZero .* unknown dimension \(axis 1 of 2\)"),
    ],
)
def test_what_depends_on_data_is_refused_by_name(tmp_path: Path, body: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_model(save(tmp_path, body), {})


def test_a_scan_behind_fences_knows_what_its_body_makes(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        """g (float[6, 64, 64] x, float[64, 64] w) => (float[64, 64] y, float[6, 64, 64] z) {
        a = Exp(w) b = Exp(a) c = Add(a, b)
        y, z = Scan <num_scan_inputs = 1, body = t (float[64, 64] s, p) => (float[64, 64] u, v) {
            v = MatMul(p, s) u = Add(s, v) }> (c, x) }""",
    )
    rewritten = onnx.load_from_string(rewrite(path, "a b c y", "all"))
    scan = next(node for node in rewritten.graph.node if node.op_type == "Scan")
    body = next(attribute.g for attribute in scan.attribute if attribute.name == "body")
    shapes = [[d.dim_value for d in out.type.tensor_type.shape.dim] for out in body.output]
    assert shapes == [[64, 64], [64, 64]]
    session = ort.InferenceSession(rewritten.SerializeToString())
    given = ort.InferenceSession(str(path))
    for one, other in zip(
        session.run(None, feeds_of(path)), given.run(None, feeds_of(path)), strict=True
    ):
        np.testing.assert_array_equal(one, other)
