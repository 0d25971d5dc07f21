"""Plans that fit in the arena of their budget, not in bytes alone."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path

import pytest

from builders import op, problem, random_training, scale
from checkmate.arena import count_budget_nbytes, is_within
from checkmate.cli.source import Asked, read_source
from checkmate.engine.fit import fit
from checkmate.engine.solve import run_baseline, solve
from checkmate.engine.tighten import N_ATTEMPTS, Draft, Goal, tighten
from checkmate.errors import InfeasibleError, InternalError, InterruptError, NotFoundError
from checkmate.folding import fold_views
from checkmate.graph import OpId
from checkmate.liveness import insert_frees
from checkmate.placement import ArenaRules, ArenaSetup
from checkmate.plan import Claim, certify
from checkmate.problem import Problem
from checkmate.schedule import Schedule
from checkmate.search.finding import Limits
from checkmate.simulate import simulate
from onnx_models import DEEP_MLP, GRAPHS, save

PROVE = Limits(gap=0.0)
EXACT = ArenaRules(ArenaSetup("exact"))
GAPS = replace(
    problem(
        op("a", nbytes=256), op("b", nbytes=256), op("c", "a", nbytes=0), op("d", "b", nbytes=512),
        outputs="d",
    ),
    arena=EXACT,
)  # fmt: skip
"""Live: 768 bytes. In an arena, a and b lie where d does not fit, so that it takes 1024."""
IN_ORDER = insert_frees(GAPS.graph, [OpId(i) for i in range(4)])


def claim(bound_ns: int = 4, strategy: str = "test") -> Claim:
    return Claim(strategy, "all-schedules", bound_ns, "optimal")


def read_mlp(folder: Path) -> Problem:
    path = save(folder, DEEP_MLP)
    return read_source(path, Asked({"N": 100}, costs="flops", arena=True)).problem


def test_a_schedule_whose_arena_exceeds_the_budget_is_no_plan() -> None:
    assert certify(GAPS, IN_ORDER, 1024, claim()).fragmentation_nbytes == 256
    with pytest.raises(InternalError, match="whose arena does not fit in 1023 B"):
        certify(GAPS, IN_ORDER, 1023, claim())


def test_without_an_arena_bytes_alone_count() -> None:
    plan = certify(replace(GAPS, arena=None), IN_ORDER, 768, claim())
    assert (plan.peak.nbytes, plan.fragmentation_nbytes) == (768, 0)


def test_resident_tensors_outside_of_the_arena_are_part_of_the_budget() -> None:
    inside = replace(EXACT, resident=(OpId(0),))  # type: ignore[arg-type]  # ids are integers
    small = problem(op("a", "x", nbytes=100), outputs="a", resident={"x": 100})
    schedule = insert_frees(small.graph, [OpId(0)])
    assert count_budget_nbytes(replace(small, arena=EXACT), schedule) == 100 + 256
    assert count_budget_nbytes(replace(small, arena=inside), schedule) == 256 + 256


def test_a_search_in_bytes_is_repeated_until_the_arena_fits(tmp_path: Path) -> None:
    mlp = read_mlp(tmp_path)
    budget_nbytes = run_baseline(mlp).peak.nbytes * 95 // 100
    in_bytes = solve(replace(mlp, arena=None), budget_nbytes, "auto", PROVE)
    assert count_budget_nbytes(mlp, in_bytes.schedule) > budget_nbytes
    plan = solve(mlp, budget_nbytes, "auto", PROVE)
    assert is_within(mlp, plan.schedule, budget_nbytes)
    assert plan.peak.nbytes + plan.fragmentation_nbytes <= budget_nbytes
    assert plan.fragmentation_nbytes > 0
    assert in_bytes.claim.bound_ns <= plan.time_ns
    assert plan.claim.bound_ns == in_bytes.claim.bound_ns


def test_equal_solves_are_equal(tmp_path: Path) -> None:
    mlp = read_mlp(tmp_path)
    budget_nbytes = run_baseline(mlp).peak.nbytes * 95 // 100
    assert solve(mlp, budget_nbytes, "greedy", PROVE) == solve(mlp, budget_nbytes, "greedy", PROVE)


def test_when_no_arena_fits_nothing_is_proved_and_the_smallest_is_named() -> None:
    with pytest.raises(NotFoundError, match="whose arena fits in 1,000 B") as caught:
        solve(GAPS, 1000, "keep-all", PROVE)
    assert caught.value.hint is not None
    assert "is 1,024 B" in caught.value.hint


def test_what_does_not_fit_in_bytes_is_still_proved_infeasible() -> None:
    with pytest.raises(InfeasibleError, match="'d' alone needs 768 B"):
        solve(GAPS, 700, "auto", PROVE)


@pytest.mark.parametrize("region", ["exact", "whole"])
@pytest.mark.parametrize("seed", range(12))
def test_plans_fit_in_arenas_of_every_kind(seed: int, region: str) -> None:
    rng = random.Random(seed)
    rules = ArenaRules(ArenaSetup(region))  # type: ignore[arg-type]
    small = replace(scale(random_training(rng, 4), rng.choice((100, 256, 1000))), arena=rules)
    baseline_nbytes = run_baseline(small).peak.nbytes
    budget_nbytes = int(baseline_nbytes * rng.choice((1.2, 1.0, 0.9)))
    try:
        plan = solve(small, budget_nbytes, "auto", PROVE)
    except (InfeasibleError, NotFoundError):
        with pytest.raises((InfeasibleError, NotFoundError)):
            solve(small, budget_nbytes, "keep-all", PROVE)
        return
    assert plan.peak.nbytes + plan.fragmentation_nbytes <= budget_nbytes
    assert is_within(small, plan.schedule, budget_nbytes)
    assert plan.claim.bound_ns <= plan.time_ns


def test_room_made_where_it_is_short_is_faster_than_less_for_all() -> None:
    path = GRAPHS / "unet-tiny-bN.onnx"
    unet = read_source(path, Asked({"N": 64}, costs="flops", arena=True)).problem
    budget_nbytes = run_baseline(unet).peak.nbytes * 60 // 100

    def find(live_nbytes: int, limits: Limits) -> Draft:
        found = solve(replace(unet, arena=None), live_nbytes, "greedy", limits)
        return Draft(found.schedule, found.time_ns, found.claim)

    first = find(budget_nbytes, Limits())
    assert not is_within(unet, first.schedule, budget_nbytes)
    with_less = tighten(unet, Goal(budget_nbytes), Limits(), first, find)
    plan = solve(unet, budget_nbytes, "greedy", Limits())
    assert plan.time_ns < with_less.time_ns


def test_searches_share_the_time_and_end(tmp_path: Path) -> None:
    asked: list[tuple[int, float | None]] = []
    tight = Draft(IN_ORDER, simulate(GAPS, IN_ORDER).time_ns, claim())

    def find(live_nbytes: int, limits: Limits) -> Draft:
        asked.append((live_nbytes, limits.time_s))
        return tight

    with pytest.raises(NotFoundError):
        tighten(GAPS, Goal(1000), Limits(time_s=8.0), tight, find)
    assert len(asked) == N_ATTEMPTS - 1
    assert [budget for budget, _ in asked] == sorted({b for b, _ in asked}, reverse=True)
    assert all(time_s is not None and time_s <= 4.0 for _, time_s in asked)


def test_what_the_first_search_proved_holds_for_the_draft_that_fits() -> None:
    small = replace(GAPS, arena=EXACT)
    first = Draft(IN_ORDER, 4, claim(bound_ns=4))
    # d is made from b before a: all lies together in one region of 512 and one of 256.
    twice = insert_frees(small.graph, [OpId(i) for i in (1, 3, 0, 2, 0, 2)])
    slower = Draft(twice, 6, Claim("other", "all-schedules", 6, "optimal"))
    assert not is_within(small, IN_ORDER, 1023)
    assert is_within(small, twice, 1023)
    best = tighten(small, Goal(1023), PROVE, first, lambda _live, _limits: slower)
    assert best.schedule == twice
    assert best.claim == Claim("other", "all-schedules", 4, "limit")


def test_what_fits_but_not_as_it_is_written_is_passed_over_where_another_is_found() -> None:
    first = Draft(IN_ORDER, 4, claim(bound_ns=4))
    twice = insert_frees(GAPS.graph, [OpId(i) for i in (1, 3, 0, 2, 0, 2)])
    again = insert_frees(GAPS.graph, [OpId(i) for i in (1, 3, 0, 2, 0, 2, 0, 2)])
    assert is_within(GAPS, twice, 1023)
    assert is_within(GAPS, again, 1023)

    def search(refused: Collection[Schedule]) -> Schedule:
        drafts = chain([Draft(twice, 6, claim())], repeat(Draft(again, 8, claim())))
        goal = Goal(1023, accepts=lambda schedule: schedule not in refused)
        return tighten(GAPS, goal, PROVE, first, lambda _live, _limits: next(drafts)).schedule

    assert search([]) == twice
    assert search([twice]) == again
    # What fits but for what its file adds is better than nothing.
    assert search([twice, again]) == twice


def test_an_interrupt_beside_a_dear_packing_ends_the_search_with_what_was_packed() -> None:
    def find(_live_nbytes: int, _limits: Limits) -> Draft:
        raise InterruptError("interrupted")

    # As if the best in bytes took three quarters of what fits in the arena.
    first = Draft(IN_ORDER, 3, claim(bound_ns=3))
    goal = Goal(1023, start=tuple(OpId(i) for i in (1, 3, 0, 2)))
    found = fit(fold_views(GAPS), goal, Limits(gap=0.0, time_s=30.0), first, find)
    assert is_within(GAPS, found.schedule, 1023)
    assert found.claim.termination == "interrupted"
