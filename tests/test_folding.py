"""Views folded away and brought back."""

from __future__ import annotations

import random

import pytest

from builders import op, problem, random_training, view
from checkmate.folding import fold_views
from checkmate.graph import OpId
from checkmate.liveness import insert_frees
from checkmate.problem import Problem
from checkmate.simulate import simulate


def names(small: Problem, order: tuple[OpId, ...]) -> str:
    return " ".join(small.graph.ops[i].name for i in order)


def test_a_reader_of_a_view_reads_its_storage_and_what_the_view_op_reads() -> None:
    small = problem(op("a"), op("s"), view("v", "a", "s"), op("b", "v"), outputs="b")
    folded = fold_views(small).folded.graph
    assert [op_.name for op_ in folded.ops] == ["a", "s", "b"]
    assert [folded.tensors[t].name for t in folded.ops[2].inputs] == ["a", "s"]


def test_a_view_is_made_at_its_first_reader_and_serves_the_next() -> None:
    small = problem(op("a"), view("v", "a"), op("b", "v"), op("c", "v"), outputs="b c")
    folding = fold_views(small)
    assert names(small, folding.unfold([OpId(0), OpId(1), OpId(2)])) == "a v b c"


def test_a_view_is_made_again_after_its_storage() -> None:
    small = problem(
        op("a"), view("v", "a"), view("w", "v"), op("b", "w"), op("c", "w b"), outputs="c"
    )
    folding = fold_views(small)
    order = folding.unfold([OpId(0), OpId(1), OpId(0), OpId(2)])
    assert names(small, order) == "a v w b a v w c"


def test_a_view_that_is_an_output_is_made_in_the_end() -> None:
    small = problem(op("a"), view("v", "a"), op("b", "a"), outputs="v b")
    folding = fold_views(small)
    assert names(small, folding.unfold([OpId(0), OpId(1)])) == "a b v"
    assert [folding.folded.graph.tensors[t].name for t in folding.folded.graph.outputs] == [
        "a",
        "b",
    ]


def test_a_view_that_nothing_reads_stays_an_op() -> None:
    small = problem(op("a"), view("v", "a"), op("b", "a"), outputs="b")
    assert len(fold_views(small).folded.graph.ops) == 3


@pytest.mark.parametrize("seed", range(200))
def test_unfolding_keeps_the_peak_and_adds_only_view_time(seed: int) -> None:
    rng = random.Random(seed)
    small = random_training(rng, 4)
    folding = fold_views(small)
    order = [OpId(i) for i in range(len(folding.folded.graph.ops))]
    again = rng.choice([i for i in order if folding.folded.graph.ops[i].recomputable] or order[:0])
    at = rng.randint(again + 1, len(order))
    inputs_kept = all(
        folding.folded.graph.tensors[t].producer is None
        for t in folding.folded.graph.ops[again].inputs
    )
    order = [*order[:at], again, *order[at:]] if inputs_kept else order
    folded = simulate(folding.folded, insert_frees(folding.folded.graph, order))
    unfolded = simulate(small, insert_frees(small.graph, folding.unfold(order)))
    assert unfolded.peak.nbytes == folded.peak.nbytes
    assert unfolded.time_ns == folded.time_ns
