"""Segments, by hand and on the networks of the Checkmate paper."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from builders import op, problem, random_training, training_chain
from checkmate.errors import NotFoundError
from checkmate.folding import fold_views
from checkmate.formats.problem_json import read_problem
from checkmate.graph import OpId
from checkmate.heuristics.articulation import find_articulation_points, find_forward
from checkmate.heuristics.chen import (
    list_chain,
    list_forward,
    order_by_size,
    order_by_sqrt,
    order_greedily,
    order_retaining,
)
from checkmate.heuristics.keep_all import order_all
from checkmate.heuristics.tables import make_tables
from checkmate.problem import Problem
from orders import is_frontier_advancing, names, random_layered, run

INSTANCES = Path(__file__).parent.parent.parent / "shared" / "instances"


def find_points(small: Problem) -> str:
    tables = make_tables(small)
    return names(small, find_articulation_points(tables, find_forward(tables)))


def read_instance(name: str) -> Problem:
    path = INSTANCES / f"{name}.json"
    if not path.exists():
        pytest.skip(f"needs {path}, the published instances")
    return read_problem(path)


def test_each_op_runs_once_in_graph_order() -> None:
    assert order_all(training_chain(2)) == (0, 1, 2, 3, 4)


def test_every_third_of_ten_forward_ops_is_retained_and_each_segment_is_recomputed_once() -> None:
    small = training_chain(9)
    assert names(small, order_by_sqrt(small)) == (
        "f0 f1 f2 f3 f4 f5 f6 f7 f8 loss b8 f6 f7 b7 b6 b5 f3 f4 b4 b3 b2 f0 f1 b1 b0"
    )


def test_a_segment_ends_with_the_first_op_after_its_size() -> None:
    small = training_chain(6)
    order = names(small, order_by_size(small, 2))
    assert order == "f0 f1 f2 f3 f4 f5 loss b5 f3 f4 b4 b3 b2 f0 f1 b1 b0"


def test_only_what_a_backward_op_needs_is_recomputed() -> None:
    small = problem(
        op("a"), op("b", "a"), op("side", "a"), op("c", "b side"), op("d", "c"),
        op("gc", "d b", backward=True), op("ga", "gc a", backward=True),
        outputs="ga",
    )  # fmt: skip
    order = names(small, order_retaining(small, [OpId(0), OpId(3)]))
    assert order == "a b side c d b gc ga"


def test_an_op_that_may_run_once_is_retained() -> None:
    small = problem(
        op("a"), op("b", "a", recomputable=False), op("c", "b"), op("d", "c"),
        op("gc", "d c b", backward=True), outputs="gc",
    )  # fmt: skip
    assert names(small, order_retaining(small, [OpId(3)])) == "a b c d c gc"


def test_without_backward_ops_nothing_is_recomputed() -> None:
    small = random_layered(random.Random(1), 12)
    assert order_by_sqrt(small) == order_all(small)
    assert order_by_size(small, 0) == order_all(small)


def test_articulation_points_lie_on_every_path_and_a_part_that_hangs_on_one_makes_none() -> None:
    small = problem(
        op("a"), op("left", "a"), op("wt"), op("right", "a wt"), op("sum", "left right"),
        op("out", "sum"), op("g", "out left", backward=True), outputs="g",
    )  # fmt: skip
    assert find_points(small) == "a sum out"


def test_a_skip_over_an_op_takes_its_place_among_the_points() -> None:
    small = problem(
        op("a"), op("b", "a"), op("c", "b"), op("d", "c b"), op("g", "d a", backward=True),
        outputs="g",
    )  # fmt: skip
    assert find_points(small) == "a b d"


def test_a_forward_op_among_backward_ones_is_no_part_of_the_network() -> None:
    small = problem(
        op("a"), op("b", "a"), op("loss", "b"), op("gb", "loss a", backward=True),
        op("at", "a"), op("gw", "gb at", backward=True), outputs="gw",
    )  # fmt: skip
    assert find_points(small) == "a b loss"
    assert names(small, order_retaining(small, [OpId(1)])) == "a b loss a gb at gw"


def test_the_greedy_variant_takes_the_fastest_segments_that_fit() -> None:
    small = training_chain(9)
    order = order_greedily(small, 8)
    assert run(small, order).peak.nbytes <= 8
    assert names(small, order).startswith("f0 f1 f2 f3 f4 f5 f6 f7 f8 loss b8 b7 b6 b5 f0")
    assert run(small, order).time_ns == 19 + 5


def test_on_a_chain_all_candidates_are_the_same() -> None:
    small = training_chain(9)
    orders = {order_by_sqrt(small, find) for find in (list_chain, list_forward)}
    assert orders == {order_by_sqrt(small)}
    assert order_greedily(small, 8, list_chain) == order_greedily(small, 8)


def test_linearized_forms_may_retain_ops_that_are_no_articulation_points() -> None:
    small = problem(
        op("a"), op("left", "a"), op("right", "a"), op("sum", "left right"),
        op("g", "sum right", backward=True), op("h", "g left", backward=True),
        op("k", "h a", backward=True), outputs="k",
    )  # fmt: skip
    assert names(small, order_by_sqrt(small)) == "a left right sum right g left h k"
    assert names(small, order_by_sqrt(small, list_forward)) == "a left right sum a right g h k"


def test_when_no_segments_fit_the_smallest_peak_is_named() -> None:
    small = training_chain(9)
    with pytest.raises(NotFoundError, match=r"fits in 4 B .* smallest peak is 6 B .* at op 'b6'"):
        order_greedily(small, 4)


@pytest.mark.parametrize("seed", range(60))
def test_orders_advance_and_recompute_each_forward_op_once_at_most(seed: int) -> None:
    small = fold_views(random_training(random.Random(seed), 8)).folded
    for order in (order_by_sqrt(small), order_by_size(small, seed % 9)):
        assert is_frontier_advancing(order)
        assert max(map(order.count, order)) <= 2
        assert run(small, order).time_ns >= small.costs.total_ns


@pytest.mark.parametrize(
    ("name", "cost_us"), [("vgg16-b256-v100", 19_865), ("mobilenet-b512-v100", 185_375)]
)
def test_published_costs_are_reached(name: str, cost_us: int) -> None:
    small = read_instance(name)
    assert run(small, order_by_sqrt(small)).time_ns == cost_us * 1000


@pytest.mark.parametrize(
    ("name", "retained", "cost_us"),
    [
        ("unet-b32-v100", (2, 30, 34), 39_305),
        ("resnet50-b256-v100", (5, 17, 69, 101, 163, 175), 485_025),
    ],
)
def test_published_costs_are_reached_when_the_same_ops_are_retained(
    name: str, retained: tuple[int, ...], cost_us: int
) -> None:
    """The published program counts off every k-th point in the order of a hash set of op numbers,
    which for these two networks is not the order of the graph. We count in graph order."""
    small = read_instance(name)
    assert run(small, order_retaining(small, list(map(OpId, retained)))).time_ns == cost_us * 1000
    assert run(small, order_by_sqrt(small)).time_ns < cost_us * 1000
