"""Orders that need less memory, against all orders there are, and what may not change."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from builders import op, problem, random_training, view
from checkmate.costs import Costs
from checkmate.engine.ordering import choose_order, restore_plan
from checkmate.engine.solve import run_baseline, solve
from checkmate.errors import GraphError
from checkmate.formats.problem_json import read_problem
from checkmate.graph import OpId
from checkmate.heuristics.ordering import order_for_memory
from checkmate.liveness import insert_frees
from checkmate.onnxio.model import Model
from checkmate.onnxio.order import HOISTED_OPS
from checkmate.onnxio.read import read_model
from checkmate.onnxio.views import VIEW_OPS
from checkmate.onnxio.write import render_model
from checkmate.placement import ArenaRules
from checkmate.problem import Problem
from checkmate.profiler.flops import estimate_costs
from checkmate.profiler.specify import specify_inputs
from checkmate.reordering import reorder
from checkmate.runtime.inputs import make_inputs
from checkmate.search.finding import Limits
from default_runs import run as run_by_default
from onnx_models import GRAPHS
from orders import names, random_layered, run
from test_cli import checkmate

BRANCHES = problem(
    op("a", nbytes=1), op("big1", "a", nbytes=9), op("big2", "a", nbytes=9),
    op("small1", "big1", nbytes=1), op("small2", "big2", nbytes=1),
    op("end", "small1 small2", nbytes=1), outputs="end",
)  # fmt: skip


def list_orders(small: Problem) -> Iterator[tuple[OpId, ...]]:
    """Yield every topological order."""
    graph = small.graph

    def extend(done: tuple[OpId, ...], made: frozenset[int]) -> Iterator[tuple[OpId, ...]]:
        if len(done) == len(graph.ops):
            yield done
        for index, node in enumerate(graph.ops):
            ready = all(graph.tensors[e].producer is None or e in made for e in node.inputs)
            if OpId(index) not in done and ready:
                yield from extend((*done, OpId(index)), made.union(node.outputs))

    yield from extend((), frozenset())


def test_branches_run_one_after_the_other() -> None:
    order = order_for_memory(BRANCHES)
    assert names(BRANCHES, order) == "a big1 small1 big2 small2 end"
    assert run(BRANCHES, order).peak.nbytes == 11


@pytest.mark.parametrize("seed", range(40))
def test_the_peak_is_between_the_best_of_all_orders_and_that_of_the_file(seed: int) -> None:
    small = random_layered(random.Random(seed), 7)
    peaks = [run(small, order).peak.nbytes for order in list_orders(small)]
    found = run(small, order_for_memory(small)).peak.nbytes
    assert min(peaks) <= found <= run(small, range(7)).peak.nbytes  # type: ignore[arg-type]


def test_most_small_graphs_get_the_best_of_all_orders() -> None:
    n_best = 0
    for seed in range(40):
        small = random_layered(random.Random(seed), 7)
        best = min(run(small, order).peak.nbytes for order in list_orders(small))
        n_best += run(small, order_for_memory(small)).peak.nbytes == best
    assert n_best >= 36


@pytest.mark.parametrize("seed", range(60))
def test_the_peak_never_rises_and_what_may_run_once_keeps_its_order(seed: int) -> None:
    small = random_training(random.Random(seed), 9)
    chosen = choose_order(small, "memory")
    assert sorted(chosen.order) == list(range(len(small.graph.ops)))
    assert run_baseline(chosen.reordered).peak.nbytes <= run_baseline(small).peak.nbytes
    pinned = [k for k in chosen.order if not small.graph.ops[k].recomputable]
    assert pinned == sorted(pinned)
    marks = [node.backward for node in chosen.reordered.graph.ops if node.name[0] != "v"]
    assert marks == sorted(marks)


def order_pair(*, recomputable: bool) -> str:
    """Return the order of two ops of which the second is better run first."""
    small = problem(
        op("p1", nbytes=9, recomputable=recomputable),
        op("p2", nbytes=9, recomputable=recomputable),
        op("s2", "p2"), op("end", "p1 s2"), outputs="end",
    )  # fmt: skip
    return names(small, order_for_memory(small))


def test_ops_that_run_once_keep_their_order_even_where_another_is_better() -> None:
    assert order_pair(recomputable=True) == "p2 s2 p1 end"
    assert order_pair(recomputable=False) == "p1 p2 s2 end"


def order_update(*, recomputable: bool) -> str:
    """Return the order of an op that reads a weight, and of an update of it that frees memory."""
    small = problem(
        op("g", nbytes=9), op("read", "w", nbytes=9),
        op("update", "w g", nbytes=0, recomputable=recomputable), op("end", "read"),
        outputs="end update", resident={"w": 5},
    )  # fmt: skip
    return names(small, order_for_memory(small))


def test_readers_of_what_an_op_that_runs_once_reads_stay_on_their_side_of_it() -> None:
    """An optimizer that writes over a weight must not run before what reads the weight."""
    assert order_update(recomputable=True).startswith("g update read")
    assert order_update(recomputable=False).split().index("update") > 1
    order = order_update(recomputable=False).split()
    assert order.index("read") < order.index("update")


def order_phases(*, backward: bool) -> str:
    """Return the order of an op that could run before the last forward ones, to free memory."""
    small = problem(
        op("f0", nbytes=9), op("f1", "f0"), op("f2", "f1", nbytes=9), op("f3", "f2"),
        op("early", "f0", backward=backward), op("end", "early f3", backward=backward),
        outputs="end",
    )  # fmt: skip
    return names(small, order_for_memory(small))


def test_the_backward_pass_stays_behind_the_forward_pass() -> None:
    assert order_phases(backward=False) == "f0 f1 early f2 f3 end"
    assert order_phases(backward=True) == "f0 f1 f2 f3 early end"


def test_where_nothing_is_gained_the_file_order_stays() -> None:
    small = problem(op("a"), view("v", "a"), op("b", "a"), op("c", "v b"), outputs="c")
    assert choose_order(small, "memory").order == (0, 1, 2, 3)


def test_the_file_order_changes_nothing() -> None:
    chosen = choose_order(BRANCHES, "file")
    assert chosen.reordered == chosen.original == BRANCHES


def test_ids_in_costs_and_arena_follow_their_ops() -> None:
    costs = Costs((1, 2, 3, 4, 5, 6), (10, 20, 30, 40, 50, 60), BRANCHES.costs.origin)
    arena = ArenaRules(partial=frozenset({OpId(2)}), n_later={OpId(2): 1})
    moved = reorder(Problem(BRANCHES.graph, costs, arena), [OpId(k) for k in (0, 1, 3, 2, 4, 5)])
    assert moved.reordered.costs.time_ns == (1, 2, 4, 3, 5, 6)
    assert moved.reordered.costs.workspace_nbytes == (10, 20, 40, 30, 50, 60)
    assert moved.reordered.arena == replace(
        arena, partial=frozenset({OpId(3)}), n_later={OpId(3): 1}
    )
    with pytest.raises(GraphError, match="'small1' comes before 'big1'"):
        reorder(BRANCHES, [OpId(k) for k in (0, 3, 1, 2, 4, 5)])


@pytest.mark.parametrize("seed", range(20))
def test_plans_are_of_the_original_problem(seed: int) -> None:
    small = random_training(random.Random(seed), 8)
    chosen = choose_order(small, "memory")
    peak_nbytes = run_baseline(chosen.reordered).peak.nbytes
    plan = restore_plan(chosen, solve(chosen.reordered, peak_nbytes, "keep-all", Limits()))
    assert run(small, plan.schedule.order).peak == plan.peak
    assert plan.peak.nbytes <= peak_nbytes
    assert plan.time_ns == small.costs.total_ns


def test_views_move_with_their_readers() -> None:
    small = problem(
        op("a", nbytes=4), view("v", "a"), op("b", nbytes=8), op("c", "v", nbytes=1),
        op("d", "b c", nbytes=1), outputs="d",
    )  # fmt: skip
    chosen = choose_order(small, "memory")
    assert names(small, chosen.order) == "a v c b d"
    assert run_baseline(chosen.reordered).peak.nbytes == 10


def read_vgg() -> tuple[Model, Problem]:
    model = read_model(GRAPHS / "vgg16-tiny-bN.onnx", {"N": 2})
    return model, Problem(model.graph, estimate_costs(model))


def test_fences_carry_the_order_under_default_options(tmp_path: Path) -> None:
    model, small = read_vgg()
    chosen = choose_order(small, "memory")
    in_file_order = list(range(len(small.graph.ops)))
    assert list(chosen.order) != in_file_order
    peak_nbytes = run_baseline(chosen.reordered).peak.nbytes
    plan = restore_plan(chosen, solve(chosen.reordered, peak_nbytes, "keep-all", Limits()))
    content = render_model(model, plan.schedule, tmp_path / "out.onnx", "all")
    feeds = make_inputs(specify_inputs(model), 0)
    done = run_by_default(content, feeds, tmp_path, "DISABLE_ALL")
    expected = [
        model.nodes[k].output[0]
        for k in plan.schedule.order
        if model.nodes[k].op_type not in (*HOISTED_OPS, *VIEW_OPS)
    ]
    assert [name for name in done.executed if name in expected] == expected
    plain = render_model(model, insert_frees(small.graph, list(map(OpId, in_file_order))), tmp_path)
    assert done.outputs == run_by_default(plain, feeds, tmp_path, "DISABLE_ALL").outputs


def test_the_command_solves_checks_and_exports_the_memory_order(tmp_path: Path) -> None:
    path = str(GRAPHS / "vgg16-tiny-bN.onnx")
    asked = (path, "--dim", "N=2", "--costs", "flops", "--optimize", "none")
    options = (*asked, "--budget", "75%", "--strategy", "greedy", "--order", "memory", "--json")
    solved = checkmate(
        "solve", *options, "--no-arena", "-o", "s.json", "--onnx", "m.onnx", cwd=tmp_path
    )
    assert solved.returncode == 0, solved.stderr
    assert "order: memory; peak without recompute" in solved.stderr
    checked = checkmate("check", path, "s.json", "--run", "--tolerance", "100%", cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr
    compared = json.loads(checkmate("compare", *options, cwd=tmp_path).stdout)["strategies"][0]
    document = json.loads(solved.stdout)
    assert compared["time_ns"] == document["time_ns"]
    export = ("export", *asked, "--order", "memory", "-o", "p.json")
    assert checkmate(*export, cwd=tmp_path).returncode == 0
    exported = read_problem(tmp_path / "p.json")
    assert exported.graph == choose_order(read_vgg()[1], "memory").reordered.graph
    assert run_baseline(exported).peak.nbytes < document["baseline_peak_nbytes"]
