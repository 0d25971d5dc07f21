"""Model-local functions: what is planned is what onnxruntime runs, and no call hides memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

from checkmate.costs import Costs
from checkmate.engine.solve import find_plan, run_baseline
from checkmate.errors import GraphError, InputError, NotFoundError
from checkmate.folding import fold_views
from checkmate.graph import Graph, Op, OpId, Tensor, TensorId, find_readers
from checkmate.onnxio.read import read_model
from checkmate.problem import Problem
from checkmate.profiler.flops import estimate_costs
from checkmate.search.finding import Limits
from onnx_models import GRAPHS, save_proto
from oracle import find_best_time
from structure_runs import assert_equal_runs, draw, run

FUNCTIONS = GRAPHS.parent.parent / "shared/graphs/special/gpt2-tiny-b4-functions.onnx"

HEAD = '<ir_version: 10, opset_import: ["" : 18, "my" : 1, "other" : 1, "com.microsoft" : 1]>'
LEAKY = """<opset_import: ["" : 18], domain: "my"> f <alpha: float = 0.5> (a) => (b) {
    c = Neg(a) b = LeakyRelu <alpha: float = @alpha> (c) }"""

CALLS = {
    "a default of an attribute": (
        """g (float[4] x) => (float[4] y) { a = my.f(x) b = my.f <alpha = 0.25> (a) y = Neg(b) }
        """ + LEAKY, 5,
    ),
    "an attribute that is handed on": (
        """g (float[4] x) => (float[4] y) { y = other.h <beta = 0.125> (x) }
        <opset_import: ["" : 18, "my" : 1], domain: "other"> h <beta> (a) => (b) {
            c = my.f <alpha: float = @beta> (a) b = my.f(c) }""" + LEAKY, 4,
    ),
    "an attribute that is handed on without a value": (
        """g (float[4] x) => (float[4] y) { y = other.h(x) }
        <opset_import: ["" : 18, "my" : 1], domain: "other"> h <beta> (a) => (b) {
            c = my.f <alpha: float = @beta> (a) b = my.f(c) }""" + LEAKY, 4,
    ),
    "an attribute without a default": (
        """g (float[4] x) => (float[4] y) { y = my.f(x) }
        <opset_import: ["" : 18], domain: "my"> f <alpha> (a) => (b) {
            c = Neg(a) b = LeakyRelu <alpha: float = @alpha> (c) }""", 2,
    ),
    "an attribute that a branch reads": (
        """g (float[4] x, bool c) => (float[4] y) { n = Neg(x) y = my.f <alpha = 0.25> (n, c) }
        <opset_import: ["" : 18], domain: "my"> f <alpha> (x, c) => (z) { z = If (c) <
            then_branch = t () => (float[4] p) { p = LeakyRelu <alpha: float = @alpha> (x) },
            else_branch = e () => (float[4] p) { p = Identity(x) }> }""", 2,
    ),
    "two overloads": (
        """g (float[4] x) => (float[4] y) { a = my.f:one(x) y = my.f:two(a) }
        <opset_import: ["" : 18], domain: "my", overload: "one"> f (a) => (b) { b = Sqrt(a) }
        <opset_import: ["" : 18], domain: "my", overload: "two"> f (a) => (b) { b = Exp(a) }""", 2,
    ),
    "one name in two domains": (
        """g (float[4] x) => (float[4] y) { a = my.f(x) y = other.f(a) }
        <opset_import: ["" : 18], domain: "my"> f (a) => (b) { b = Sqrt(a) }
        <opset_import: ["" : 18], domain: "other"> f (a) => (b) { b = Exp(a) }""", 2,
    ),
    "another operator set than that of the model": (
        """g (float[4] x) => (float y) { a = my.f(x) y = ReduceSum <keepdims = 0> (a) }
        <opset_import: ["" : 17], domain: "my"> f (a) => (b) { b = Sqrt(a) }""", 2,
    ),
    "a function that nothing calls": (
        """g (float[4] x) => (float[4] y) { y = Sqrt(x) }
        <opset_import: ["" : 18], domain: "my"> f (a) => (b) { b = Exp(a) }""", 1,
    ),
    "branches that capture what the body makes": (
        """g (float[4] x, bool c) => (float[4] y) {
            q = Exp(x) a = my.f(q, c) p = my.f(a, c) y = Add(p, q) }
        <opset_import: ["" : 18], domain: "my"> f (a, c) => (b) { q = Sqrt(a) b = If (c) <
            then_branch = t () => (float[4] p) { r = Exp(q) p = Mul(r, a) },
            else_branch = e () => (float[4] p) { p = Identity(q) }> }""", 6,
    ),
    "a loop in a body": (
        """g (float[4] x) => (float[4] y) <int64 n = {3}> { a = my.f(x, n) y = my.f(a, n) }
        <opset_import: ["" : 18], domain: "my"> f (s, n) => (y) { e = Sqrt(s)
            y = Loop (n, "", s) <body = b (int64 i, bool c, float[4] t) => (bool d, float[4] u) {
                u = Add(t, e) d = Identity(c) }> }""", 4,
    ),
    "a call in a branch in a branch": (
        """g (float[4] x, bool c) => (float[4] y) { q = Exp(x) y = If (c) <
            then_branch = t () => (float[4] p) { n = Neg(q) p = If (c) <
                then_branch = u () => (float[4] r) { r = my.f(n) },
                else_branch = v () => (float[4] r) { r = Identity(n) }> },
            else_branch = e () => (float[4] p) { p = Identity(q) }> }""" + LEAKY, 2,
    ),
    "names that are taken already": (
        """g (float[4] x) => (float[4] y) {
            q = Exp(x) my__q = Sqrt(q) a = my.f(my__q) q__1 = my.f(a) y = Add(q__1, q) }
        <opset_import: ["" : 18], domain: "my"> f (x) => (y) { q = Sqrt(x) y = Exp(q) }""", 7,
    ),
    "inputs that a call leaves out": (
        """g (float[4] x, float[4] z) => (float[4] y) {
            a = my.f(x) b = my.f(a, "", z) y = Add(a, b) }
        <opset_import: ["" : 18], domain: "my"> f (x, lo, hi) => (y) { q = Abs(x) y = Exp(q) }""",
        5,
    ),
    "a function with the name of a standard operator": (
        """g (float[4] x) => (float[4] y) { y = Sqrt(x) }
        <opset_import: ["" : 18], domain: ""> Sqrt (x) => (z) { z = Exp(x) }""", 1,
    ),
    "a function with the name of an operator of onnxruntime": (
        """g (float[4] x) => (float[4] y) { a = com.microsoft.Gelu(x) y = com.microsoft.Own(a) }
        <opset_import: ["" : 18], domain: "com.microsoft"> Gelu (x) => (z) { z = Exp(x) }
        <opset_import: ["" : 18], domain: "com.microsoft"> Own (x) => (z) { y = Exp(x) z = Sqrt(y) }
        """, 3,
    ),
}  # fmt: skip


def save_functions(folder: Path, text: str) -> Path:
    return save_proto(folder, onnx.parser.parse_model(f"{HEAD}\n{text}"))


@pytest.mark.parametrize(("text", "n_ops"), CALLS.values(), ids=CALLS.keys())
def test_a_call_is_planned_as_onnxruntime_runs_it(tmp_path: Path, text: str, n_ops: int) -> None:
    assert len(assert_equal_runs(save_functions(tmp_path, text), {}).graph.ops) == n_ops


def test_a_function_for_providers_without_the_operator_stays_in_the_model(tmp_path: Path) -> None:
    text = CALLS["a function with the name of an operator of onnxruntime"][0]
    model = assert_equal_runs(save_functions(tmp_path, text), {})
    assert [function.name for function in model.proto.functions] == ["Gelu", "Own"]
    assert [node.op_type for node in model.nodes] == ["Gelu", "Exp", "Sqrt"]


def test_a_default_is_not_the_default_of_the_operator(tmp_path: Path) -> None:
    path = save_functions(tmp_path, f"g (float[4] x) => (float[4] y) {{ y = my.f(x) }}{LEAKY}")
    feeds = {"x": np.array([-1, 0, 1, 2], "f4")}
    planned = run(read_model(path, {}).proto, feeds)[0]
    np.testing.assert_array_equal(planned, np.array([1, 0, -0.5, -1], "f4"))


def test_an_operator_that_changed_between_operator_sets_is_complained_of(tmp_path: Path) -> None:
    text = """g (float[4] x) => (float y) { y = my.f(x) }
        <opset_import: ["" : 17], domain: "my"> f (a) => (b) {
            b = ReduceMax <axes = [0], keepdims = 0> (a) }"""
    model = read_model(save_functions(tmp_path, text), {})
    assert "Unrecognized attribute: axes" in model.complaints[0]
    with pytest.raises(Exception, match="Unrecognized attribute: axes"):
        run(onnx.load(model.path), draw(model.proto, {}))


def test_a_function_that_calls_itself_in_a_branch_is_refused(tmp_path: Path) -> None:
    text = """g (float[4] x, bool c) => (float[4] y) { y = my.f(x, c) }
        <opset_import: ["" : 18, "my" : 1], domain: "my"> f (x, c) => (z) { z = If (c) <
            then_branch = t () => (float[4] p) { p = my.f(x, c) },
            else_branch = e () => (float[4] p) { p = Identity(x) }> }"""
    with pytest.raises(GraphError, match="function 'f' of the model calls itself"):
        read_model(save_functions(tmp_path, text), {})


def test_functions_in_branches_that_stand_for_too_many_nodes_are_refused(tmp_path: Path) -> None:
    calls = [
        f"""<opset_import: ["" : 18, "my" : 1], domain: "my"> f{i} (x, c) => (z) {{ z = If (c) <
            then_branch = t () => (float[4] p) {{ q = my.f{i + 1}(x, c) p = my.f{i + 1}(q, c) }},
            else_branch = e () => (float[4] p) {{ p = my.f{i + 1}(x, c) }}> }}"""
        for i in range(30)
    ]
    last = '<opset_import: ["" : 18], domain: "my"> f30 (x, c) => (z) { z = Exp(x) }'
    text = "g (float[4] x, bool c) => (float[4] y) { y = my.f0(x, c) }"
    with pytest.raises(InputError, match="more than 500000 nodes"):
        read_model(save_functions(tmp_path, "\n".join([text, *calls, last])), {})


def merge_calls(problem: Problem, sizes: Sequence[int]) -> Problem:
    """Return ``problem`` with each stretch of ``sizes`` ops as one op, as who plans calls sees it.

    What is made and read in one stretch alone is its workspace: as much as it needs at least.
    """
    folding = fold_views(problem)
    graph, costs, at = folding.folded.graph, folding.folded.costs, 0
    groups: list[list[OpId]] = []
    for size in sizes:
        groups.append([OpId(i) for i, old in enumerate(folding.kept) if at <= old < at + size])
        at += size
    groups = [group for group in groups if group]
    readers, place = find_readers(graph), {op: i for i, g in enumerate(groups) for op in g}
    shown = [
        tensor.producer is None
        or TensorId(i) in graph.outputs
        or any(place[reader] != place[tensor.producer] for reader in readers[i])
        for i, tensor in enumerate(graph.tensors)
    ]
    ids = {TensorId(i): TensorId(sum(shown[:i])) for i, is_shown in enumerate(shown) if is_shown}
    ops = []
    for group in groups:
        reads = dict.fromkeys(t for op in group for t in graph.ops[op].inputs)
        makes = [t for op in group for t in graph.ops[op].outputs if shown[t]]
        others = tuple(ids[t] for t in reads if shown[t] and graph.tensors[t].producer not in group)
        ops.append(
            Op(
                graph.ops[group[0]].name,
                others,
                tuple(ids[t] for t in makes),
                all(graph.ops[op].recomputable for op in group),
                any(graph.ops[op].backward for op in group),
            )
        )
    tensors = tuple(
        Tensor(t.name, t.nbytes, None if t.producer is None else OpId(place[t.producer]))
        for i, t in enumerate(graph.tensors)
        if shown[i]
    )
    workspaces = tuple(measure_workspace(folding.folded, group, shown) for group in groups)
    times = tuple(sum(costs.time_ns[op] for op in group) for group in groups)
    merged = Graph("merged", tuple(ops), tensors, tuple(ids[t] for t in graph.outputs))
    return Problem(merged, Costs(times, workspaces, costs.origin))


def measure_workspace(problem: Problem, group: list[OpId], shown: list[bool]) -> int:
    """Return what a stretch needs at most beside what it reads and hands on."""
    graph, readers = problem.graph, find_readers(problem.graph)
    held, most, handed = 0, 0, 0
    for position, op in enumerate(group):
        made = graph.ops[op].outputs
        held += sum(graph.tensors[t].nbytes for t in made)
        handed += sum(graph.tensors[t].nbytes for t in made if shown[t])
        most = max(most, held + problem.costs.workspace_nbytes[op])
        for t in dict.fromkeys((*graph.ops[op].inputs, *made)):
            is_over = not any(later in readers[t] for later in group[position + 1 :])
            if not shown[t] and graph.tensors[t].producer in group and is_over:
                held -= graph.tensors[t].nbytes
    return max(0, most - handed)


def count_nodes(proto: onnx.ModelProto) -> list[int]:
    """Return how many ops each node stands for: none call others, and constants are none."""
    sizes = {
        (f.domain, f.name): sum(node.op_type != "Constant" for node in f.node)
        for f in proto.functions
    }
    nodes = (node for node in proto.graph.node if node.op_type != "Constant")
    return [sizes.get((node.domain, node.op_type), 1) for node in nodes]


def test_the_best_plan_of_bodies_is_never_worse_than_that_of_calls(tmp_path: Path) -> None:
    text = """g (float[8, 64] x) => (float[8, 64] y) {
        a, p = my.up(x) b, q = my.up(a) c, r = my.up(b)
        f = Mul(c, r) e = Mul(f, q) y = Mul(e, p) }
        <opset_import: ["" : 18], domain: "my"> up (x) => (y, z) { y = Exp(x) z = Tanh(x) }"""
    path = save_functions(tmp_path, text)
    model = read_model(path, {})
    bodies = Problem(model.graph, estimate_costs(model))
    calls = merge_calls(bodies, count_nodes(onnx.load(path)))
    assert (len(bodies.graph.ops), len(calls.graph.ops)) == (9, 6)
    budgets = range(3 * 2048, 8 * 2048, 2048)
    never = 1 << 60
    of_bodies = [find_best_time(bodies, budget) or never for budget in budgets]
    of_calls = [find_best_time(calls, budget) or never for budget in budgets]
    assert all(one <= other for one, other in zip(of_bodies, of_calls, strict=True))
    assert of_bodies[-1] == of_calls[-1] == bodies.costs.total_ns
    assert of_bodies[1] < of_calls[1] == never
    assert of_bodies[2] < of_calls[2] < never


@pytest.mark.skipif(not FUNCTIONS.exists(), reason=f"needs {FUNCTIONS}")
def test_plans_of_bodies_are_no_worse_than_those_of_calls_where_both_are_searched() -> None:
    model = read_model(FUNCTIONS, {})
    bodies = Problem(model.graph, estimate_costs(model))
    calls = merge_calls(bodies, count_nodes(onnx.load(FUNCTIONS)))
    assert len(calls.graph.ops) < len(bodies.graph.ops)
    peak_nbytes = run_baseline(calls).peak.nbytes
    assert run_baseline(bodies).peak.nbytes <= peak_nbytes
    for percent in (95, 85, 75, 65):
        of_bodies, of_calls = (
            find_time(problem, peak_nbytes * percent // 100) for problem in (bodies, calls)
        )
        assert of_bodies <= of_calls


def find_time(problem: Problem, budget_nbytes: int) -> int:
    """Return the time of the plan that greedy finds; more than any where it finds none."""
    try:
        return find_plan(problem, budget_nbytes, "greedy", Limits(gap=0.0)).time_ns
    except NotFoundError:
        return 1 << 60
