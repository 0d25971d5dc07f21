"""The programs that the search for chains of stages goes through, and what they may claim."""

from __future__ import annotations

import random

import pytest

from builders import random_training, training_chain
from chain_oracle import find_best_chain
from chain_problems import draw_chain
from checkmate.errors import InfeasibleError, NoneInSpaceError, NotFoundError
from checkmate.folding import fold_views
from checkmate.graph import OpId
from checkmate.liveness import insert_frees
from checkmate.milp.assemble import make_clock
from checkmate.milp.chain import arrange, split_windows
from checkmate.milp.chain_assemble import assemble
from checkmate.milp.chain_encode import decode, encode, join_windows
from checkmate.milp.chain_frame import make_bounding_frame, make_chosen_frame
from checkmate.milp.chain_hops import find_hops, has_few_near
from checkmate.milp.model import relax
from checkmate.problem import Problem
from checkmate.search import chain_search
from checkmate.search.chain_drafts import choose, find_used, join_stages
from checkmate.search.chain_steps import Step
from checkmate.search.finding import Limits
from checkmate.search.frontier_bound import bound_frontier
from checkmate.search.stages import begin_stages, solve_stages
from checkmate.simulate import simulate
from checkmate.solver.highs import solve_program
from checkmate.solver.result import Settings

PROVE = Limits(gap=0.0)


def peak_of(small: Problem) -> int:
    in_order = [OpId(i) for i in range(len(small.graph.ops))]
    return simulate(small, insert_frees(small.graph, in_order)).peak.nbytes


def draw_fitting(first: int) -> tuple[Problem, int, int, tuple[OpId, ...]]:
    """Return a random problem, a budget, and the best chain of stages in it."""
    for seed in range(first, first + 50):
        small, budget_nbytes = draw_chain(seed)
        best = find_best_chain(small, budget_nbytes)
        if best is not None and best[0] > small.costs.total_ns:
            return small, budget_nbytes, *best
    raise AssertionError(first)


@pytest.mark.parametrize("first", range(0, 2000, 50))
def test_the_best_schedule_is_the_optimum_of_the_program_of_its_own_recomputes(first: int) -> None:
    small, budget_nbytes, best_ns, order = draw_fitting(first)
    chain = arrange(small.graph)
    assert chain is not None
    windows = split_windows(chain, order)
    assert windows is not None
    frame = make_chosen_frame(chain, small, budget_nbytes, windows)
    clock, stages = make_clock(small), range(len(chain.stages))
    assembly = assemble(frame, clock, stages)
    program = assembly.program
    start = encode(frame, assembly.windows, program.n_cols, windows)
    assert (program.find_row_values(start) <= program.row_upper + 1e-6).all()
    result = solve_program(program, Settings(), start)
    assert result.values is not None
    assert result.objective * clock.unit_ns == pytest.approx(best_ns, abs=1e-3)
    found = join_windows(chain, decode(frame, result.values))
    simulation = simulate(small, insert_frees(small.graph, found))
    assert simulation.peak.nbytes <= budget_nbytes
    assert simulation.time_ns == best_ns


def test_a_relaxation_recomputes_some_ops_of_many() -> None:
    small = fold_views(random_training(random.Random(0), 60)).folded
    chain = arrange(small.graph)
    assert chain is not None
    frame = make_bounding_frame(chain, small, peak_of(small) * 7 // 10, 4)
    result = solve_program(relax(assemble(frame, make_clock(small), ()).program), Settings())
    assert result.values is not None
    used = find_used(frame, result.values)
    assert 0 < sum(map(len, used)) < len(frame.columns.run) / 4
    assert all(set(ops) <= set(near) for ops, near in zip(used, frame.hops.near, strict=True))
    cost_ns = sum(small.costs.time_ns[k] for ops in used for k in ops)
    assert cost_ns > 0


def test_windows_are_joined_stage_by_stage() -> None:
    a, b, c = OpId(1), OpId(2), OpId(3)
    assert join_stages([[a], []], [[b, c], [a]]) == [[a, b, c], [a]]
    assert join_stages([[a], [b]], None) == [[a], [b]]


def test_near_recomputes_of_chosen_ops_and_those_of_the_windows_are_chosen() -> None:
    chain = arrange(training_chain(4).graph)
    assert chain is not None
    frame = make_bounding_frame(chain, training_chain(4), 4, 2)
    assert frame.hops.near == ((2, 3, 4), (1, 2), (0, 1), (0,))
    windows = [[], [OpId(0)], [], []]
    chosen = choose(frame, [OpId(1)], windows)
    assert chosen == [[], [0, 1], [0, 1], [0]]


@pytest.mark.parametrize("depth", [1, 3, None])
def test_near_recomputes_are_counted_up_to_a_limit(depth: int | None) -> None:
    chain = arrange(training_chain(12).graph)
    assert chain is not None
    # Those of all stages: what is near only so that it is so in some stage is among them here.
    n_near = sum(map(len, find_hops(chain, depth).near))
    assert has_few_near(chain, depth, n_near)
    assert not has_few_near(chain, depth, n_near - 1)


def test_a_program_for_schedules_does_not_prove_that_there_are_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small, budget_nbytes = draw_chain(55)
    assert find_best_chain(small, budget_nbytes) is not None
    monkeypatch.setattr(chain_search, "STEPS", (Step("schedule", 1),))
    with pytest.raises(NotFoundError, match="no schedule found") as caught:
        solve_stages(small, budget_nbytes, PROVE)
    assert not isinstance(caught.value, NoneInSpaceError | InfeasibleError)


@pytest.mark.parametrize("first", range(0, 500, 50))
def test_small_problems_are_solved_whole_to_their_optimum(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, budget_nbytes, best_ns, _ = draw_fitting(first)
    monkeypatch.setattr(chain_search, "STEPS", (Step("both", None),))
    finding = solve_stages(small, budget_nbytes, PROVE)
    assert finding.claim.bound_ns == best_ns
    assert simulate(small, insert_frees(small.graph, finding.order)).time_ns == best_ns


def test_schedules_of_chosen_ops_are_better_than_evicting_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chain_search, "STEPS", (Step("schedule", 4), Step("schedule", 6)))
    small = fold_views(random_training(random.Random(5), 30)).folded
    budget_nbytes = peak_of(small) * 6 // 10
    search = begin_stages(small, budget_nbytes)
    times: list[int] = []

    def report(order: tuple[OpId, ...] | None, _bound_ns: int) -> None:
        if order is not None:
            times.append(simulate(small, insert_frees(small.graph, order)).time_ns)

    search.relax(Limits(gap=0.0), report)
    drafted_ns = times[-1]
    finding = search.run(Limits(gap=0.01, nodes=10), None, report)
    found_ns = simulate(small, insert_frees(small.graph, finding.order)).time_ns
    assert found_ns < drafted_ns
    assert found_ns == min(times)
    assert finding.claim.bound_ns <= found_ns


def test_without_time_no_bound_of_all_stages_is_learned() -> None:
    small = fold_views(random_training(random.Random(5), 60)).folded
    learned: list[int] = []
    bound_frontier(
        small, peak_of(small) // 2, Limits(time_s=0.0), lambda ns: bool(learned.append(ns))
    )
    assert learned == []


def test_a_program_that_is_not_written_in_time_is_given_up() -> None:
    small = training_chain(12)
    chain = arrange(small.graph)
    assert chain is not None
    frame = make_bounding_frame(chain, small, 6, None)
    with pytest.raises(NotFoundError, match="while the program was written"):
        assemble(frame, make_clock(small), (), deadline_s=0.0)
