"""Binomial checkpointing, against its published counts and a table of all ways."""

from __future__ import annotations

from functools import cache

import pytest

from builders import op, problem, training_chain
from checkmate.errors import NotFoundError, UnsuitableError
from checkmate.heuristics.given import order_given, order_last
from checkmate.heuristics.revolve import (
    count_steps,
    order_by_revolve,
    order_with_states,
    require_chain,
)
from checkmate.heuristics.tables import make_tables
from checkmate.problem import Problem
from orders import is_frontier_advancing, names, run


@cache
def count_by_trying(n_states: int, n_slots: int) -> int:
    """Return the fewest forward steps of all ways to choose which state to store next."""
    if n_slots == 1 or n_states == 1:
        return n_states * (n_states - 1) // 2
    return min(
        step + count_by_trying(n_states - step, n_slots - 1) + count_by_trying(step, n_slots)
        for step in range(1, n_states)
    )


def count_forward(small: Problem, n_layers: int, n_states: int) -> int:
    tables = make_tables(small)
    order = order_with_states(tables, require_chain(small, tables), n_states)
    assert is_frontier_advancing(order)
    return sum(op_ < n_layers for op_ in order)


@pytest.mark.parametrize("n_slots", range(1, 7))
def test_the_formula_is_the_least_of_all_ways(n_slots: int) -> None:
    counts = [count_steps(n_states, n_slots) for n_states in range(1, 40)]
    assert counts == [count_by_trying(n_states, n_slots) for n_states in range(1, 40)]


def test_ten_steps_with_three_slots_take_fifteen_as_published() -> None:
    assert count_steps(10, 3) == 15


@pytest.mark.parametrize("n_layers", [1, 2, 5, 9, 16, 25])
@pytest.mark.parametrize("n_states", [0, 1, 2, 3, 5, 30])
def test_orders_of_a_chain_have_the_fewest_forward_computes(n_layers: int, n_states: int) -> None:
    # The input of the chain is a state too, and is always there.
    expected = count_by_trying(n_layers + 1, n_states + 1)
    assert count_forward(training_chain(n_layers), n_layers, n_states) == expected


def test_memory_is_the_stored_states_and_the_three_at_hand() -> None:
    small = training_chain(16)
    tables = make_tables(small)
    orders = [order_with_states(tables, require_chain(small, tables), n) for n in range(5)]
    assert [run(small, order).peak.nbytes for order in orders] == [3, 4, 5, 6, 7]


def test_the_fastest_that_fits_is_taken() -> None:
    small = training_chain(9)
    assert run(small, order_by_revolve(small, 4)).time_ns == 20 + 10
    assert run(small, order_by_revolve(small, 11)).time_ns == 19
    with pytest.raises(NotFoundError, match=r"fits in 2 B .* smallest peak is 3 B"):
        order_by_revolve(small, 2)


def test_gradients_that_read_two_results_have_both_retained() -> None:
    """With room for all of them, nothing is computed twice."""
    small = problem(
        op("a"), op("b", "a"), op("c", "b"), op("loss", "c"),
        op("gc", "loss c b", backward=True), op("gb", "gc b a", backward=True),
        op("wb", "gc a", backward=True), op("ga", "gb a", backward=True),
        outputs="ga wb loss",
    )  # fmt: skip
    assert names(small, order_by_revolve(small, 99)) == "a b c loss gc gb wb ga"
    tables = make_tables(small)
    order = order_with_states(tables, require_chain(small, tables), 0)
    assert names(small, order) == "a b c loss gc a gb wb ga"


def test_the_first_op_that_breaks_the_chain_is_named() -> None:
    skip = problem(
        op("a"), op("b", "a"), op("c", "b a"), op("d", "c a"), op("g", "d", backward=True),
        outputs="g",
    )  # fmt: skip
    with pytest.raises(UnsuitableError, match="is no chain: forward op 'c' reads"):
        order_by_revolve(skip, 99)
    with pytest.raises(UnsuitableError, match="no backward ops"):
        order_by_revolve(problem(op("a"), op("b", "a"), outputs="b"), 99)


def test_an_op_that_may_run_once_is_stored_whatever_the_number() -> None:
    small = problem(
        op("a"), op("b", "a", recomputable=False), op("c", "b"), op("d", "c"),
        op("gd", "d c", backward=True), op("gc", "gd b", backward=True),
        op("gb", "gc a", backward=True), outputs="gb",
    )  # fmt: skip
    tables = make_tables(small)
    order = order_with_states(tables, require_chain(small, tables), 0)
    assert names(small, order) == "a b c d gd gc a gb"


def test_the_last_result_alone_is_retained() -> None:
    small = training_chain(3)
    order = names(small, order_last(make_tables(small)))
    assert order == "f0 f1 f2 loss f0 f1 f2 b2 f0 f1 b1 f0 b0"


def test_what_is_retained_later_than_it_was_made_is_made_again_in_between() -> None:
    small = problem(op("a"), op("b", "a"), op("c", "b"), op("d", "c a"), outputs="d b")
    tables = make_tables(small)
    retained = [(), tables.makes[0], tables.makes[1], (*tables.makes[0], *tables.makes[2])]
    assert names(small, order_given(tables, retained)) == "a b a c d"
    without = [(), tables.makes[0], tables.makes[1], tables.makes[2]]
    assert names(small, order_given(tables, without)) == "a b c a d"


def test_transposed_weights_and_shapes_are_no_part_of_the_chain() -> None:
    small = problem(
        op("wt"), op("a", "wt"), op("shape", "a"), op("b", "a"), op("vt"), op("c", "b vt"),
        op("gc", "c b", backward=True), op("gb", "gc a shape", backward=True),
        op("ga", "gb wt vt", backward=True), outputs="ga",
    )  # fmt: skip
    tables = make_tables(small)
    links = require_chain(small, tables)
    assert names(small, links) == "wt a b c"
    order = order_with_states(tables, links, 0)
    assert names(small, order) == "wt a shape b vt c gc wt a gb wt ga"


def test_a_detour_between_links_is_named() -> None:
    small = problem(
        op("a"), op("b", "a"), op("side", "a"), op("c", "b"), op("d", "c side"),
        op("g", "d", backward=True), outputs="g",
    )  # fmt: skip
    with pytest.raises(UnsuitableError, match="forward op 'side' reads"):
        order_by_revolve(small, 99)
