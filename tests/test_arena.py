"""The simulated arena, by hand; and against sessions with a limit."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from builders import op, problem, random_training, scale, view
from checkmate.arena import ArenaPeak, find_arena_peak, fits_arena
from checkmate.chunks import Arena
from checkmate.errors import OutOfMemoryError
from checkmate.graph import OpId, TensorId
from checkmate.liveness import insert_frees
from checkmate.onnxio.read import read_model
from checkmate.onnxio.storage import find_arena_rules
from checkmate.placement import ArenaRules, ArenaSetup
from checkmate.problem import Problem
from checkmate.profiler.profile import ProfileOptions, profile_model
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.device import probe_device
from checkmate.runtime.execute import RunOptions, run_model
from checkmate.runtime.protocol import Settings
from checkmate.schedule import Schedule
from checkmate.simulate import simulate
from onnx_models import GRAPHS, save

MANY = 2**40
SETUP = ArenaSetup("exact")
EXACT = ArenaRules(SETUP)


def in_file_order(problem: Problem) -> Schedule:
    return insert_frees(problem.graph, [OpId(i) for i in range(len(problem.graph.ops))])


def find_peak(problem: Problem, rules: ArenaRules) -> ArenaPeak:
    return find_arena_peak(problem, in_file_order(problem), rules)


def fill(arena: Arena, *sizes: int) -> list[int]:
    addresses = [arena.allocate(size) for size in sizes]
    assert None not in addresses
    return [address for address in addresses if address is not None]


def test_sizes_are_rounded_up() -> None:
    arena = Arena(SETUP, MANY)
    fill(arena, 1, 256, 257)
    assert arena.reserved_nbytes == 256 + 256 + 512


def test_the_smallest_chunk_that_holds_a_request_is_taken() -> None:
    arena = Arena(SETUP, MANY)
    large, small = fill(arena, 1024, 768)
    arena.release(large)
    arena.release(small)
    assert fill(arena, 700) == [small]


def test_of_equal_chunks_the_lower_is_taken() -> None:
    arena = Arena(SETUP, MANY)
    first, second = fill(arena, 512, 512)
    arena.release(second)
    arena.release(first)
    assert fill(arena, 512) == [min(first, second)]


def test_a_chunk_is_split_when_half_of_it_or_more_is_left() -> None:
    arena = Arena(ArenaSetup("exact", max_dead_nbytes=MANY), MANY)
    (large,) = fill(arena, 1024)
    arena.release(large)
    assert fill(arena, 512, 512) == [large, large + 512]
    assert arena.reserved_nbytes == 1024


def test_a_chunk_is_not_split_when_less_is_left() -> None:
    arena = Arena(ArenaSetup("exact", max_dead_nbytes=512), MANY)
    (large,) = fill(arena, 1024)
    arena.release(large)
    fill(arena, 768, 256)
    assert arena.reserved_nbytes == 1024 + 256


def test_a_chunk_is_split_when_too_many_bytes_would_be_dead() -> None:
    arena = Arena(ArenaSetup("exact", max_dead_nbytes=256), MANY)
    (large,) = fill(arena, 1024)
    arena.release(large)
    fill(arena, 768, 256)
    assert arena.reserved_nbytes == 1024


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (2, 1, 0)])
def test_neighbours_in_a_region_merge_in_whatever_order_they_are_freed(
    order: tuple[int, ...],
) -> None:
    arena = Arena(SETUP, MANY)
    (whole,) = fill(arena, 768)
    arena.release(whole)
    parts = fill(arena, 256, 256, 256)
    for position in order:
        arena.release(parts[position])
    assert fill(arena, 768) == [whole]


def test_regions_do_not_merge() -> None:
    arena = Arena(SETUP, MANY)
    for address in fill(arena, 256, 256):
        arena.release(address)
    fill(arena, 512)
    assert arena.reserved_nbytes == 1024


def test_one_region_serves_what_many_could_not() -> None:
    arena = Arena(ArenaSetup("whole"), 512)
    for address in fill(arena, 256, 256):
        arena.release(address)
    assert arena.allocate(512) is not None


@pytest.mark.parametrize("region", ["exact", "whole"])
def test_a_request_beyond_the_limit_is_refused(region: str) -> None:
    arena = Arena(ArenaSetup(region), 1023)  # type: ignore[arg-type]
    assert arena.allocate(768) is not None
    assert arena.allocate(1) is None


def test_a_chain_holds_two_neighbours() -> None:
    chain = problem(
        op("a", nbytes=512), op("b", "a", nbytes=256), op("c", "b", nbytes=512), outputs="c"
    )
    # c fits where a was.
    assert find_peak(chain, EXACT) == ArenaPeak(768, 768)
    assert find_peak(chain, ArenaRules()) == ArenaPeak(768, 768)


def test_gaps_are_fragmentation() -> None:
    graph = problem(
        op("a", nbytes=256),
        op("b", nbytes=256),
        op("c", "a", nbytes=0),
        op("d", "b", nbytes=512),
        outputs="d",
    )
    # When d is made, a is free and b is not: no 512 bytes lie together.
    peak = find_peak(graph, EXACT)
    assert peak == ArenaPeak(256 + 256 + 512, 256 + 512)
    assert peak.fragmentation_nbytes == 256


def test_tensors_without_bytes_take_nothing() -> None:
    assert find_peak(problem(op("a", nbytes=0), outputs="a"), ArenaRules()).live_nbytes == 0
    assert find_peak(problem(op("a", nbytes=0), outputs="a"), EXACT).reserved_nbytes == 0


def test_a_view_keeps_the_chunk_of_its_source() -> None:
    graph = problem(
        op("a", nbytes=256), view("v", "a"), op("b", nbytes=256), op("c", "v b", nbytes=256),
        outputs="c",
    )  # fmt: skip
    assert find_peak(graph, EXACT).reserved_nbytes == 768


def test_workspace_comes_after_the_outputs_and_goes_with_the_op() -> None:
    graph = problem(
        op("a", nbytes=256, workspace_nbytes=512), op("b", "a", nbytes=512), outputs="a b"
    )
    assert find_peak(graph, EXACT) == ArenaPeak(768, 768)


def test_partial_results_come_in_blocks_and_before_the_output() -> None:
    graph = problem(
        op("a", nbytes=256, workspace_nbytes=512), op("b", "a", nbytes=512), outputs="a b"
    )
    # Three chunks of 256 that do not lie together.
    rules = ArenaRules(SETUP, partial=frozenset({OpId(0)}))
    assert find_peak(graph, rules) == ArenaPeak(256 + 256 + 256 + 512, 768)


@pytest.mark.parametrize(("n_later", "place"), [(0, 1), (1, 0), (2, 1)])
def test_a_later_partial_result_is_made_before_the_one_it_replaces_goes(
    n_later: int, place: int
) -> None:
    graph = problem(op("a", nbytes=256, workspace_nbytes=256), op("b", nbytes=512), outputs="a b")
    rules = ArenaRules(partial=frozenset({OpId(0)}), n_later={OpId(0): n_later})
    # Partial results and the output lie in two places by turns; what is free behind merges.
    assert find_peak(graph, rules) == ArenaPeak(256 * place + 256 + 512, 768)


def test_an_output_takes_over_the_storage_of_an_input_that_dies() -> None:
    graph = problem(op("a", nbytes=256), op("b", "a", nbytes=256), outputs="b")
    rules = ArenaRules(SETUP, in_place={TensorId(1): TensorId(0)})
    assert find_peak(graph, EXACT).reserved_nbytes == 512
    assert find_peak(graph, rules) == ArenaPeak(256, 256)


def test_storage_that_someone_else_holds_is_not_taken_over() -> None:
    read_later = problem(
        op("a", nbytes=256), op("b", "a", nbytes=256), op("c", "a b", nbytes=0), outputs="c"
    )
    held_by_view = problem(
        op("a", nbytes=256), view("v", "a"), op("b", "a", nbytes=256), op("c", "v b", nbytes=0),
        outputs="c",
    )  # fmt: skip
    resident = problem(op("b", "x", nbytes=256), outputs="b", resident={"x": 256})
    for graph, made, read in ((read_later, 1, 0), (held_by_view, 2, 0), (resident, 1, 0)):
        rules = ArenaRules(SETUP, in_place={TensorId(made): TensorId(read)})
        assert find_peak(graph, rules) == find_peak(graph, EXACT)


def test_resident_tensors_are_in_the_arena_only_where_it_holds_them() -> None:
    graph = problem(op("a", "x y", nbytes=256), outputs="a", resident={"x": 256, "y": 512})
    assert find_peak(graph, EXACT).reserved_nbytes == 256
    assert find_peak(graph, ArenaRules(SETUP, resident=(TensorId(1),))).reserved_nbytes == 768


def test_a_later_run_may_need_more_than_the_first() -> None:
    graph = problem(
        op("a", nbytes=1024), op("a-", "a", nbytes=0),
        # All but e fit where a was, side by side.
        op("b", nbytes=256), op("c", nbytes=512), op("d", nbytes=256), op("e", nbytes=256),
        # f fits where b and c were. In the second run, b is where e was in the first.
        op("bc-", "b c", nbytes=0), op("f", nbytes=768),
        outputs="d e f",
    )  # fmt: skip
    assert find_peak(graph, EXACT).reserved_nbytes == 1024 + 256 + 768
    assert find_peak(graph, ArenaRules()).reserved_nbytes == 1280


@given(st.integers(0, 10_000), st.sampled_from(["exact", "whole"]), st.sampled_from([1, 100, 300]))
@settings(max_examples=150, deadline=None)
def test_what_is_found_to_work_works_and_holds_what_is_live(
    seed: int, region: str, unit_nbytes: int
) -> None:
    scaled = scale(random_training(random.Random(seed), 6), unit_nbytes)
    rules = ArenaRules(ArenaSetup(region))  # type: ignore[arg-type]
    schedule = in_file_order(scaled)
    peak = find_arena_peak(scaled, schedule, rules)
    simulated = simulate(scaled, schedule).peak
    event(f"fragmentation: {peak.fragmentation_nbytes > 0}")
    assert peak.live_nbytes == simulated.live_nbytes + simulated.workspace_nbytes
    assert peak.reserved_nbytes >= peak.live_nbytes
    assert peak.reserved_nbytes % 256 == 0
    assert fits_arena(scaled, schedule, rules, peak.reserved_nbytes)
    assert not fits_arena(scaled, schedule, rules, peak.live_nbytes - 1)


@pytest.mark.parametrize(("name", "batch"), [("gpt2", 32), ("unet", 16)])
def test_a_session_works_in_the_arena_that_is_predicted_and_in_none_much_smaller(
    name: str, batch: int
) -> None:
    check_prediction(GRAPHS / f"{name}-tiny-bN.onnx", {"N": batch})


@pytest.mark.parametrize("n_inputs", [3, 4, 5, 6])
def test_the_partial_results_of_a_sum_lie_where_they_are_predicted(
    n_inputs: int, tmp_path: Path
) -> None:
    names = [f"x{i}" for i in range(n_inputs)]
    given = ", ".join(f"float[4096] {name}" for name in names)
    body = f"""training ({given}) => (float[12288] z)
    {{
        y = Sum({", ".join(names)})
        big = Concat <axis = 0> (x0, x1)
        z = Concat <axis = 0> (y, big)
    }}"""
    check_prediction(save(tmp_path, body), {})


def check_prediction(path: Path, dims: dict[str, int]) -> None:
    model = read_model(path, dims)
    options = ProfileOptions(threads=1, max_runs=1)
    costs = profile_model(model, probe_device("cpu"), options, lambda _: None).costs
    graph = Problem(model.graph, costs)
    peak = find_arena_peak(graph, in_file_order(graph), find_arena_rules(model, "cpu"))
    specs = specify_inputs(model)

    def run(limit_nbytes: int) -> None:
        settings = Settings(threads=1, arena_limit_nbytes=limit_nbytes)
        run_model(path, specs, RunOptions(settings, n_runs=0, n_timed_runs=2))

    run(peak.reserved_nbytes)
    with pytest.raises(OutOfMemoryError):
        run(peak.reserved_nbytes * 98 // 100)
