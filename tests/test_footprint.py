"""Where the memory of a graph goes, against counts by hand and a naive search for what is live."""

from __future__ import annotations

import random

import pytest

from builders import chain, op, problem, random_training, training_chain, view
from checkmate.engine.footprint import Footprint, find_footprint
from checkmate.graph import Graph
from checkmate.problem import Problem
from oracle import find_best_time


def find_root(graph: Graph, tensor: int) -> int:
    while (source := graph.tensors[tensor].source) is not None:
        tensor = source
    return tensor


def list_live(graph: Graph, k: int) -> set[int]:
    """Return the storage in memory while op ``k`` runs: what it or a later op needs."""
    needed = {find_root(graph, tensor) for tensor in graph.outputs}
    for later in graph.ops[k:]:
        needed |= {find_root(graph, tensor) for tensor in (*later.inputs, *later.outputs)}
    made = {tensor for earlier in graph.ops[: k + 1] for tensor in earlier.outputs}
    return {root for root in needed if root in made}


def list_saved(graph: Graph) -> set[int]:
    """Return what ops before the first backward op made and it or later ops read."""
    first = next(k for k, op in enumerate(graph.ops) if op.backward)
    made = {tensor for op in graph.ops[:first] for tensor in op.outputs}
    read = {find_root(graph, tensor) for op in graph.ops[first:] for tensor in op.inputs}
    return made & read


@pytest.mark.parametrize("seed", range(40))
def test_what_is_live_and_saved_is_what_a_naive_search_finds(seed: int) -> None:
    small = random_training(random.Random(seed), 9)
    graph = small.graph
    found = find_footprint(small)
    used = [
        sum(graph.tensors[tensor].nbytes for tensor in list_live(graph, k))
        + small.costs.workspace_nbytes[k]
        for k in range(len(graph.ops))
    ]
    peak_op = used.index(max(used))
    assert found.peak.op == peak_op
    assert found.peak.nbytes == max(used) + graph.resident_nbytes
    assert {life.tensor for life in found.at_peak} == list_live(graph, peak_op)
    assert {life.tensor for life in found.saved} == list_saved(graph)


@pytest.mark.parametrize("seed", range(6))
def test_nothing_fits_below_the_bound_and_something_in_the_smallest_budget(seed: int) -> None:
    small = random_training(random.Random(seed), 4)
    found = find_footprint(small)
    assert found.smallest_nbytes is not None
    assert found.bound_nbytes <= found.smallest_nbytes <= found.peak.nbytes
    assert find_best_time(small, found.bound_nbytes - 1) is None
    assert find_best_time(small, found.smallest_nbytes) is not None


def test_each_tensor_at_the_peak_has_its_maker_its_uses_and_its_kind() -> None:
    small = problem(
        op("f0", "x", nbytes=5),
        view("v0", "f0"),
        op("f1", "v0", makes={"f1": 3, "stats": 2}),
        op("loss", "f1", nbytes=1),
        op("b1", "loss f1", nbytes=4, backward=True),
        op("b0", "b1 v0", nbytes=6, workspace_nbytes=7, backward=True),
        outputs="loss b0",
        resident={"x": 10},
    )
    found = find_footprint(small)
    told = [
        (small.graph.tensors[life.tensor].name, life.kind, life.made, life.uses)
        for life in found.at_peak
    ]
    assert told == [
        ("b0", "output", 5, ()),
        ("f0", "activation", 0, (1, 2, 5)),
        ("b1", "gradient", 4, (5,)),
        ("loss", "output", 3, (4,)),
    ]
    assert found.peak.nbytes == 10 + 6 + 5 + 4 + 1 + 7
    kinds = ("activation", "gradient", "output")
    assert [found.count_nbytes(small.graph, kind) for kind in kinds] == [5, 4, 7]


def name_saved(small: Problem, found: Footprint) -> list[str]:
    return [small.graph.tensors[life.tensor].name for life in found.saved]


def test_saved_are_the_forward_tensors_that_the_backward_pass_reads() -> None:
    small = training_chain(3)
    assert sorted(name_saved(small, find_footprint(small))) == ["f0", "f1", "f2", "loss"]


def test_a_quick_search_finds_a_budget_below_the_peak() -> None:
    found = find_footprint(training_chain(12))
    assert found.peak.nbytes == 14
    assert found.smallest_nbytes is not None
    assert found.bound_nbytes == 3
    assert found.smallest_nbytes <= 5


def test_a_large_graph_is_not_searched() -> None:
    sizes = (3,) * 2000
    assert find_footprint(chain(*sizes)).smallest_nbytes == 6
    assert find_footprint(chain(*sizes, 3)).smallest_nbytes is None


def test_without_a_backward_pass_nothing_is_saved() -> None:
    assert find_footprint(chain(4, 2, 7, 1)).saved == ()


def test_a_graph_of_inputs_alone_has_no_peak_op() -> None:
    small = problem(op("nothing", "x", nbytes=0), outputs="nothing", resident={"x": 10})
    found = find_footprint(small)
    assert found.peak.op is None
    assert found.at_peak == ()
    assert found.bound_nbytes == found.smallest_nbytes == 10
