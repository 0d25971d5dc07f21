"""Phases: what one finds the next begins from, and what one breaks costs that phase alone."""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from builders import op, problem, random_training, training_chain
from checkmate.errors import (
    InfeasibleError,
    InterruptError,
    NoneInSpaceError,
    NotFoundError,
    SolverError,
)
from checkmate.folding import fold_views
from checkmate.graph import OpId
from checkmate.heuristics.keep_all import order_all
from checkmate.liveness import insert_frees
from checkmate.plan import certify
from checkmate.problem import Problem
from checkmate.search.claims import run_order
from checkmate.search.finding import Finding, Limits
from checkmate.search.phases import AUTO, EXACT, EXHAUSTIVE, GREEDY, KEEP_ALL, POLISH, RELAX, STAGES
from checkmate.search.pipeline import Phase, run_phases
from checkmate.search.progress import Progress
from checkmate.search.standing import Standing
from checkmate.search.strategies import STRATEGIES
from checkmate.solver.process import solve_in_worker
from checkmate.solver.result import Settings
from test_solver import HARD, find_children
from test_stages import again_in_forward

PROVE = Limits(gap=0.0)


@dataclass
class Diary:
    """A listener that writes everything down, and can send a Ctrl-C when it hears something."""

    interrupt_in: str = ""
    heard: list[Progress] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def tell(self, progress: Progress) -> None:
        self.heard.append(progress)
        if progress.phase == self.interrupt_in:
            self.interrupt_in = ""
            signal.raise_signal(signal.SIGINT)

    def warn(self, text: str) -> None:
        self.warnings.append(text)


def large(seed: int = 3, n_forward: int = 12) -> tuple[Problem, int]:
    small = fold_views(random_training(random.Random(seed), n_forward)).folded
    return small, run_order(small, order_all(small)).peak.nbytes * 6 // 10


def time_of(small: Problem, budget_nbytes: int, finding: Finding) -> int:
    schedule = insert_frees(small.graph, finding.order)
    return certify(small, schedule, budget_nbytes, finding.claim).time_ns


def test_a_phase_begins_from_what_the_one_before_it_found() -> None:
    small, budget_nbytes = large()
    seen: list[tuple[OpId, ...] | None] = []
    look = Phase("look", lambda standing: seen.append(standing.order))
    run_phases(small, budget_nbytes, PROVE, (look, GREEDY, look))
    assert seen[0] is None
    assert seen[1] is not None
    assert run_order(small, seen[1]).peak.nbytes <= budget_nbytes


def test_the_phases_of_auto_end_where_the_gap_is_reached() -> None:
    small, budget_nbytes = large()
    diary = Diary()
    finding = run_phases(small, budget_nbytes, Limits(gap=9.0, listener=diary), AUTO)
    assert {progress.phase for progress in diary.heard} == {"keep-all", "greedy"}
    assert finding.claim.termination == "gap"
    assert finding.claim.space == "all-schedules"


def note(heard: list[str], name: str) -> Phase:
    return Phase(name, lambda _: heard.append(name), is_polish=True)


def test_a_phase_that_polishes_runs_once_the_gap_is_reached() -> None:
    small, budget_nbytes = training_chain(8), 5
    heard: list[str] = []
    phases = (note(heard, "early"), STAGES, note(heard, "late"))
    run_phases(small, budget_nbytes, Limits(gap=0.01), phases)
    assert heard == ["late"]


def test_nothing_is_polished_where_the_time_of_every_op_once_is_near() -> None:
    small, budget_nbytes = training_chain(8), 5
    heard: list[str] = []
    run_phases(small, budget_nbytes, Limits(gap=9.0), (STAGES, note(heard, "late")))
    assert heard == []


def test_polishing_betters_an_order_that_is_good_enough() -> None:
    small, budget_nbytes = large(2, 24)
    limits = Limits(gap=0.1)
    plain = run_phases(small, budget_nbytes, limits, (GREEDY, RELAX))
    polished = run_phases(small, budget_nbytes, limits, (GREEDY, RELAX, POLISH))
    time_ns, plain_ns = (time_of(small, budget_nbytes, one) for one in (polished, plain))
    assert plain.claim.termination == "gap"
    assert time_ns < plain_ns
    assert (polished.claim.strategy, polished.claim.space) == ("anneal", "chain-of-stages")


def forget_draft(standing: Standing) -> None:
    standing.draft = None


def test_polishing_begins_from_what_the_greedy_found_too() -> None:
    small = fold_views(random_training(random.Random(16), 32)).folded
    budget_nbytes = run_order(small, order_all(small)).peak.nbytes * 7 // 10
    forget = Phase("forget", forget_draft)
    phases = (GREEDY, RELAX, POLISH), (GREEDY, forget, RELAX, POLISH)
    found = [run_phases(small, budget_nbytes, Limits(gap=0.06), one) for one in phases]
    both_ns, best_alone_ns = (time_of(small, budget_nbytes, one) for one in found)
    assert both_ns < best_alone_ns


def test_a_listener_hears_of_better_schedules_and_bounds_only() -> None:
    small, budget_nbytes = large()
    diary = Diary()
    run_phases(small, budget_nbytes, Limits(gap=0.01, listener=diary), (KEEP_ALL, GREEDY, STAGES))
    times = [progress.time_ns for progress in diary.heard if progress.time_ns is not None]
    bounds = [progress.bound_ns for progress in diary.heard]
    assert times == sorted(times, reverse=True)
    assert bounds == sorted(bounds)
    assert bounds[-1] > bounds[0] == small.costs.total_ns


def by_name(name: str) -> list[Phase]:
    return [phase for phase in AUTO if phase.name == name]


def lie_about_the_peak(standing: Standing) -> None:
    standing.offer(order_all(standing.problem), "liar")


def lie_about_the_bound(standing: Standing) -> None:
    standing.raise_bound("chain-of-stages", 10**9)


def lie_about_feasibility(_: Standing) -> None:
    raise InfeasibleError("nothing fits")


def fail_in_the_solver(_: Standing) -> None:
    solve_in_worker(HARD, Settings(nodes=-1))


def run_out_of_memory(_: Standing) -> None:
    raise MemoryError


@pytest.mark.parametrize(
    ("phase", "warning"),
    [
        (lie_about_the_peak, None),
        (lie_about_the_bound, "no chain-of-stages schedule was to take less than 1.000 s, but"),
        (lie_about_feasibility, "the broken phase failed: nothing fits, but a schedule fits"),
        (fail_in_the_solver, "the broken phase failed: HiGHS refused option mip_max_nodes"),
        (run_out_of_memory, "the broken phase failed: out of memory"),
    ],
)
def test_a_phase_that_fails_costs_what_it_would_have_found(
    phase: object, warning: str | None
) -> None:
    small, budget_nbytes = training_chain(8), 5
    broken = Phase("broken", phase)  # type: ignore[arg-type]
    diary = Diary()
    limits = Limits(gap=0.0, listener=diary)
    finding = run_phases(small, budget_nbytes, limits, (GREEDY, broken, STAGES))
    assert time_of(small, budget_nbytes, finding) == finding.claim.bound_ns == 22
    assert len(diary.warnings) == (warning is not None)
    assert all(warning in text for text in diary.warnings if warning)


def test_a_bound_above_an_order_of_its_space_is_not_believed_later_either() -> None:
    small, budget_nbytes = training_chain(8), 5
    broken = Phase("broken", lie_about_the_bound)
    finding = run_phases(small, budget_nbytes, PROVE, (broken, GREEDY))
    assert finding.claim.space == "all-schedules"
    assert finding.claim.bound_ns == 17


@contextmanager
def kill_children() -> Iterator[None]:
    """Kill whatever process this one starts."""
    is_over = threading.Event()

    def kill() -> None:
        while not is_over.wait(0.02):
            for child in find_children():
                os.kill(child, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
def test_a_worker_that_is_killed_costs_its_phase() -> None:
    small, budget_nbytes = large()
    diary = Diary()
    with kill_children():
        finding = run_phases(small, budget_nbytes, Limits(gap=0.0, listener=diary), AUTO)
    assert time_of(small, budget_nbytes, finding) > small.costs.total_ns
    assert finding.claim.space == "all-schedules"
    assert diary.warnings == [
        f"the {name} phase failed: the HiGHS process ended with code -9"
        for name in ("relax", "stages", "bound", "exact", "rounds")
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space")
def test_a_solver_without_memory_costs_its_phase() -> None:
    small, budget_nbytes = large()
    diary = Diary()
    before = resource.getrlimit(resource.RLIMIT_DATA)
    taken = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (max(taken, 2**20), before[1]))
    try:
        finding = run_phases(small, budget_nbytes, Limits(gap=0.0, listener=diary), AUTO)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
    assert time_of(small, budget_nbytes, finding) > small.costs.total_ns
    assert diary.warnings == []


@pytest.mark.parametrize("phase", ["greedy", "stages", "exact", "rounds"])
def test_a_ctrl_c_takes_what_is_in_hand(phase: str) -> None:
    small, budget_nbytes = large()
    first = Phase("first", GREEDY.run)
    limits = Limits(gap=0.0, listener=Diary(interrupt_in=phase))
    finding = run_phases(small, budget_nbytes, limits, (first, GREEDY, *by_name(phase)))
    assert finding.claim.termination == "interrupted"
    assert time_of(small, budget_nbytes, finding) > small.costs.total_ns


def test_the_greedy_takes_what_it_has_at_a_ctrl_c() -> None:
    small, budget_nbytes = large()

    class AtFirstOrder(Diary):
        def tell(self, progress: Progress) -> None:
            if progress.time_ns is not None:
                signal.raise_signal(signal.SIGINT)

    finding = STRATEGIES["greedy"](small, budget_nbytes, Limits(0.0, listener=AtFirstOrder()))
    assert finding.claim.termination == "interrupted"
    assert time_of(small, budget_nbytes, finding) > small.costs.total_ns


def test_a_ctrl_c_with_nothing_in_hand_returns_nothing() -> None:
    small, budget_nbytes = large()
    limits = Limits(gap=0.0, listener=Diary(interrupt_in="greedy"))
    with pytest.raises(InterruptError, match="interrupted before anything that fits was found"):
        STRATEGIES["greedy"](small, budget_nbytes, limits)


def test_what_proves_most_is_said_when_nothing_was_found() -> None:
    small, budget_nbytes, _ = again_in_forward()
    with pytest.raises(NoneInSpaceError, match="no chain-of-stages schedule"):
        run_phases(small, budget_nbytes, PROVE, (KEEP_ALL, STAGES, KEEP_ALL))
    # One of a and its workspace is always in the way of c.
    narrow = problem(
        op("a", nbytes=1, workspace_nbytes=5), op("b", "a", nbytes=4), op("c", "b", nbytes=4),
        op("d", "c a", nbytes=1), outputs="d",
    )  # fmt: skip
    with pytest.raises(InfeasibleError, match="no schedule of this op order fits in 8 B"):
        run_phases(narrow, 8, PROVE, (GREEDY, EXACT, EXHAUSTIVE))


def test_a_solver_that_fails_with_nothing_in_hand_is_named() -> None:
    small, budget_nbytes = large()
    with pytest.raises(SolverError, match="HiGHS refused option"):
        run_phases(small, budget_nbytes, PROVE, (Phase("broken", fail_in_the_solver),))


def test_no_time_is_enough_for_a_first_schedule() -> None:
    small, budget_nbytes = large()
    finding = run_phases(small, budget_nbytes, Limits(gap=0.0, time_s=0.0), AUTO)
    assert finding.claim.termination == "limit"
    assert time_of(small, budget_nbytes, finding) > small.costs.total_ns


def test_without_a_clock_the_same_search_finds_the_same() -> None:
    small, budget_nbytes = large()
    limits = Limits(gap=0.0, nodes=1)
    found = [run_phases(small, budget_nbytes, limits, (GREEDY, STAGES)) for _ in range(2)]
    assert found[0] == found[1]


def test_no_plan_is_above_its_budget_over_a_thousand_problems() -> None:
    n_recomputing = 0
    for seed in range(800):
        rng = random.Random(seed)
        small = fold_views(random_training(rng, rng.randint(2, 6))).folded
        peak_nbytes = run_order(small, order_all(small)).peak.nbytes
        for percent in (rng.randint(60, 95), rng.randint(80, 99)):
            budget_nbytes = peak_nbytes * percent // 100
            try:
                finding = run_phases(small, budget_nbytes, PROVE, (KEEP_ALL, GREEDY))
            except (InfeasibleError, NotFoundError):
                continue
            assert run_order(small, finding.order).peak.nbytes <= budget_nbytes
            n_recomputing += time_of(small, budget_nbytes, finding) > small.costs.total_ns
    assert n_recomputing > 150
