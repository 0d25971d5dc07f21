"""Rounds of local search and small programs."""

from __future__ import annotations

import random

from builders import op, problem, random_training
from checkmate.folding import fold_views
from checkmate.heuristics.greedy import improve_within
from checkmate.heuristics.keep_all import order_all
from checkmate.problem import Problem
from checkmate.search.claims import run_order
from checkmate.search.finding import Limits
from checkmate.search.phases import GREEDY, GREEDY_EFFORT, ROUNDS
from checkmate.search.pipeline import Phase, run_phases
from checkmate.search.reopened import Reopening
from checkmate.search.standing import Standing
from oracle import find_best_time

PROGRAMS = Phase("programs", lambda standing: Reopening(standing, lambda: False).improve(30))


def make_case(seed: int) -> tuple[Problem, int]:
    rng = random.Random(seed)
    small = fold_views(random_training(rng, 4)).folded
    peak_nbytes = run_order(small, order_all(small)).peak.nbytes
    return small, int(0.85 * peak_nbytes)


def can_begin(small: Problem, budget_nbytes: int) -> bool:
    """Return whether the greedy finds anything that fits."""
    found = improve_within(small, budget_nbytes, GREEDY_EFFORT)
    return any(one.peak_nbytes <= budget_nbytes for one in found)


def time_of(small: Problem, budget_nbytes: int, phases: tuple[Phase, ...]) -> int:
    """Return the time that ``phases`` find, without a clock; it fits."""
    finding = run_phases(small, budget_nbytes, Limits(gap=0.0), phases)
    found = run_order(small, finding.order)
    assert found.peak.nbytes <= budget_nbytes
    return found.time_ns


def test_rounds_find_what_is_no_slower_than_the_best_in_turn() -> None:
    n_recomputing = 0
    for seed in range(12):
        small, budget_nbytes = make_case(seed)
        best_ns = find_best_time(small, budget_nbytes)
        recomputes = best_ns is not None and best_ns > small.costs.total_ns
        if recomputes and can_begin(small, budget_nbytes):
            assert time_of(small, budget_nbytes, (GREEDY, ROUNDS)) <= best_ns, seed
            n_recomputing += 1
    assert n_recomputing >= 2


def test_programs_better_an_order_without_local_search() -> None:
    # Either of two chains may be run twice; that of a is dearer.
    small = problem(
        op("x", nbytes=1), op("a", "x", nbytes=4, time_ns=9), op("b", "x", nbytes=4, time_ns=2),
        op("c", "a", nbytes=1), op("d", "b", nbytes=1), op("e", "c d x", nbytes=5),
        op("f", "e a", nbytes=1), op("g", "f b", nbytes=1), outputs="g",
    )  # fmt: skip
    dear = [0, 1, 2, 3, 4, 5, 1, 6, 7]

    def start(standing: Standing) -> None:
        standing.offer(dear, "start")

    budget_nbytes = run_order(small, dear).peak.nbytes
    before_ns = time_of(small, budget_nbytes, (Phase("start", start),))
    after_ns = time_of(small, budget_nbytes, (Phase("start", start), PROGRAMS))
    assert after_ns < before_ns


def test_without_a_clock_the_same_rounds_find_the_same() -> None:
    small, budget_nbytes = make_case(7)
    first, second = (
        run_phases(small, budget_nbytes, Limits(gap=0.0), (GREEDY, ROUNDS)) for _ in range(2)
    )
    assert first == second
