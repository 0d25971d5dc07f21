"""Budgets that are proved too small without a solver."""

from __future__ import annotations

import random

import pytest

from builders import op, problem, random_training
from checkmate.errors import InfeasibleError
from checkmate.folding import fold_views
from checkmate.graph import OpId
from checkmate.heuristics.local_search import Manner, search_locally
from checkmate.heuristics.tables import make_tables
from checkmate.liveness import insert_frees
from checkmate.search.bound import check_conceivable, smallest_conceivable_nbytes
from checkmate.simulate import simulate
from oracle import find_best_time
from random_problems import draw_problem


def test_an_op_needs_its_inputs_outputs_and_workspace_beside_what_is_resident() -> None:
    small = problem(
        op("a", "x", nbytes=4), op("b", "a", nbytes=2, workspace_nbytes=7), op("c", "b"),
        outputs="c", resident={"x": 10},
    )  # fmt: skip
    assert smallest_conceivable_nbytes(small) == (10 + 4 + 2 + 7, OpId(1))


def test_what_is_made_once_is_there_until_its_last_reader() -> None:
    small = problem(
        op("a", nbytes=4, recomputable=False), op("b", nbytes=5), op("c", "b", nbytes=3),
        op("d", "a c"), op("e", "c", nbytes=8), outputs="e",
    )  # fmt: skip
    assert smallest_conceivable_nbytes(small) == (4 + 5 + 3, OpId(2))


def test_an_op_may_wait_until_what_is_made_once_was_read() -> None:
    small = problem(
        op("a", nbytes=4, recomputable=False), op("big", nbytes=6), op("b", "a"),
        op("end", "big b"), outputs="end",
    )  # fmt: skip
    assert smallest_conceivable_nbytes(small) == (8, OpId(3))
    order = [OpId(k) for k in (0, 2, 1, 3)]
    assert simulate(small, insert_frees(small.graph, order)).peak.nbytes == 8


@pytest.mark.parametrize(("pinned", "least_nbytes"), [("", 7), ("big", 10), ("c", 11)])
def test_an_op_may_not_wait_when_it_or_what_reads_it_runs_once(
    pinned: str, least_nbytes: int
) -> None:
    small = problem(
        op("a", nbytes=4, recomputable=False),
        op("big", nbytes=6, recomputable=pinned != "big"),
        op("c", "big", recomputable=pinned != "c"), op("b", "a"), op("end", "c b"),
        outputs="end",
    )  # fmt: skip
    assert smallest_conceivable_nbytes(small)[0] == least_nbytes


def test_an_output_that_is_made_once_is_there_until_the_end() -> None:
    small = problem(op("a", nbytes=4, recomputable=False), op("b", nbytes=5), outputs="a b")
    assert smallest_conceivable_nbytes(small) == (9, OpId(1))


def test_graph_outputs_are_in_memory_together_at_the_end() -> None:
    small = problem(op("a", nbytes=4), op("b", nbytes=5), op("c"), outputs="a b c")
    assert smallest_conceivable_nbytes(small) == (10, OpId(2))


def test_resident_tensors_may_bind_alone() -> None:
    small = problem(outputs="x", resident={"x": 3})
    assert smallest_conceivable_nbytes(small) == (3, None)
    with pytest.raises(
        InfeasibleError, match=r"2 B .*: its inputs and parameters alone needs? 3 B"
    ):
        check_conceivable(small, 2)


@pytest.mark.parametrize("first_seed", range(0, 100, 20))
def test_nothing_fits_below_the_bound(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 20):
        small = fold_views(random_training(random.Random(seed), 3)).folded
        least_nbytes, _ = smallest_conceivable_nbytes(small)
        assert find_best_time(small, least_nbytes - 1) is None, seed
        in_order = [OpId(i) for i in range(len(small.graph.ops))]
        assert least_nbytes <= simulate(small, insert_frees(small.graph, in_order)).peak.nbytes


@pytest.mark.parametrize("first_seed", range(540, 700, 20))
def test_no_search_finds_anything_below_the_bound(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 20):
        small = fold_views(draw_problem(seed, is_small=True)).folded
        tables = make_tables(small)
        least_nbytes, _ = smallest_conceivable_nbytes(small)
        in_order = [OpId(i) for i in range(len(small.graph.ops))]
        *_, best = search_locally(tables, least_nbytes - 1, in_order, Manner(1))
        assert best.excess_nbytes > 0, seed
