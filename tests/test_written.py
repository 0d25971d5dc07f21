"""Plans that fit as they are written, whatever it is that writing adds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import training_chain
from checkmate.engine.ordering import choose_order
from checkmate.engine.reserve import NoRoomError
from checkmate.engine.solve import run_baseline
from checkmate.engine.written import Expand, Form, Forms, Search, solve_written
from checkmate.graph import OpId, Tensor
from checkmate.problem import Problem
from checkmate.schedule import Schedule
from checkmate.search.finding import Limits

CHAIN = training_chain(6)
PEAK_NBYTES = run_baseline(CHAIN).peak.nbytes


def adding(nbytes: int) -> Expand:
    """Return a file that holds so many bytes throughout beside what its schedule does."""

    def expand(schedule: Schedule) -> tuple[Problem, Schedule]:
        graph = CHAIN.graph
        tensors = (*graph.tensors, Tensor("added", nbytes, None))
        return replace(CHAIN, graph=replace(graph, tensors=tensors)), schedule

    return expand


def form(nbytes: int, spare_nbytes: int = 0) -> Form:
    return Form(choose_order(CHAIN, "file"), adding(nbytes), spare_nbytes)


def solve(forms: Forms, budget_nbytes: int) -> tuple[int, bool, list[str]]:
    said: list[str] = []
    plan, held = solve_written(forms, Search(budget_nbytes, "exact", Limits()), said.append)
    return plan.peak.nbytes, held, said


def test_what_a_file_adds_and_may_take_is_left_free() -> None:
    peak_nbytes, held, said = solve(Forms(form(0), form(1, 1)), PEAK_NBYTES)
    assert (held, said) == (True, [])
    assert peak_nbytes <= PEAK_NBYTES - 2


def test_fences_that_may_go_do_so_where_the_graph_fits_as_it_is() -> None:
    peak_nbytes, held, said = solve(Forms(form(0), form(2), may_go=True), PEAK_NBYTES)
    assert (peak_nbytes, held) == (PEAK_NBYTES, False)
    assert said == [
        "no fences: the graph fits in the budget as it is, and with them it needs"
        f" {PEAK_NBYTES + 2} B (0.000 GiB); run with the options that the schedule names"
    ]


def test_fences_without_room_go_where_they_may_and_end_the_search_where_they_may_not() -> None:
    large = form(PEAK_NBYTES)
    peak_nbytes, held, said = solve(Forms(form(0), large, may_go=True), PEAK_NBYTES - 2)
    assert peak_nbytes <= PEAK_NBYTES - 2
    assert not held
    assert [line.partition(":")[0] for line in said] == ["no fences"]
    with pytest.raises(NoRoomError, match="leaves room for its fences"):
        solve(Forms(form(0), large), PEAK_NBYTES - 2)


def test_a_file_without_fences_that_has_no_room_is_said_with_what_it_needs() -> None:
    _, held, said = solve(Forms(form(PEAK_NBYTES)), PEAK_NBYTES - 2)
    assert not held
    assert len(said) == 1
    assert said[0].startswith("no schedule was found that leaves room for what its file adds")


def test_the_order_that_a_search_began_from_is_taken_where_its_file_fits() -> None:
    order = tuple(OpId(i) for i in range(len(CHAIN.graph.ops)))
    forms = Forms(form(0), form(1), may_go=True)
    search = Search(PEAK_NBYTES + 1, "exact", Limits(), order)
    plan, held = solve_written(forms, search, lambda _: None)
    assert held
    assert plan.peak.nbytes == PEAK_NBYTES


def test_a_form_counts_what_its_file_needs() -> None:
    order = tuple(OpId(i) for i in range(len(CHAIN.graph.ops)))
    assert form(3, 4).count_kept_nbytes(0) == PEAK_NBYTES + 7
    assert form(3, 4).count_nbytes(order, 0) == PEAK_NBYTES + 7
    assert form(3, 4).count_nbytes(order, 2 * PEAK_NBYTES) == 2 * PEAK_NBYTES
    # Nothing is written.
    assert Form(choose_order(CHAIN, "file")).count_kept_nbytes(5) == 5
