"""The steps of `bench/gpu_check.py` about arenas: predicted ones, and those that work."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from checkmate.arena import ArenaPeak, count_outside_nbytes, find_arena_peak
from checkmate.errors import RunError
from checkmate.graph import OpId
from checkmate.liveness import insert_frees
from checkmate.plan import Plan
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.limited import LimitedRuns
from checkmate.runtime.protocol import Layout, Provider, Settings
from gpu_report import Figures, Findings, judge, judge_ratio
from gpu_steps import Bench, find_plan

OWN_LAYOUT: dict[Provider, Layout] = {"cpu": "region", "cuda": "requests"}
"""Of the arena that `open_session` makes, which is the one that is predicted."""
MOST_SHARE = 0.05
"""How far the predicted arena may be from the smallest one that works, which is found to 2 %."""
_CHUNK_NBYTES = 256


@dataclass(frozen=True, slots=True)
class ArenaBench:
    """A graph on a device, with a plan that was made for an arena."""

    bench: Bench
    plan: Plan
    rewritten: Path
    """The file that runs the plan."""
    arena: ArenaPeak
    """What is predicted of it."""

    @property
    def limit_nbytes(self) -> int:
        """What the budget leaves to the arena."""
        outside_nbytes = count_outside_nbytes(self.bench.problem.graph, self.bench.rules)
        return self.plan.budget_nbytes - outside_nbytes


def prepare_arena(bench: Bench) -> ArenaBench:
    """Return ``bench`` with a plan for the arena, within the smallest budget where need be."""
    problem = replace(bench.problem, arena=bench.rules)
    plan = find_plan(problem)
    arena = find_arena_peak(problem, plan.schedule, bench.rules)
    return ArenaBench(bench, plan, bench.place(plan, "none", "arena"), arena)


def try_arenas(made: ArenaBench) -> Findings:
    """Return whether both graphs run in the arena that the budget leaves.

    The rewritten one must, and in an arena of the predicted size too. The original must not where
    it asks for more than the limit at its peak; where it asks for less, gaps decide.
    """
    limit_nbytes, arena, bench = made.limit_nbytes, made.arena, made.bench
    asked_nbytes = _count_original_nbytes(bench)
    with Tries(bench, OWN_LAYOUT[bench.device.provider]) as tries:
        refusals = (
            tries.try_limit(made.rewritten, limit_nbytes),
            tries.try_limit(made.rewritten, arena.reserved_nbytes),
            tries.try_limit(bench.place_original(), limit_nbytes),
        )
    figures: Figures = {
        "budget_nbytes": made.plan.budget_nbytes,
        "limit_nbytes": limit_nbytes,
        "predicted_nbytes": arena.reserved_nbytes,
        "live_nbytes": arena.live_nbytes,
        "original_live_nbytes": asked_nbytes,
        "original_refusal": refusals[2],
    }
    subjects = ("rewritten, limit", "rewritten, predicted size", "original, limit")
    named = zip(subjects, refusals, (True, True, False), strict=True)
    checks = tuple(
        judge(
            what,
            refusal or "completes",
            "completes" if completes else "out of memory",
            holds=(refusal is None) == completes,
            is_judged=completes or asked_nbytes > limit_nbytes,
        )
        for what, refusal, completes in named
    )
    return Findings(figures, checks)


def _count_original_nbytes(bench: Bench) -> int:
    """Return what the graph without recompute asks of its arena at the peak."""
    order = [OpId(index) for index in range(len(bench.problem.graph.ops))]
    schedule = insert_frees(bench.problem.graph, order)
    return find_arena_peak(bench.problem, schedule, bench.rules).live_nbytes


def find_smallest_arenas(made: ArenaBench, layouts: tuple[Layout, ...]) -> Findings:
    """Return the smallest arenas of each layout that work, against the predicted one.

    That of the layout which `open_session` makes is judged; another is a trial, of which a
    failure is a result.
    """
    figures: Figures = {"predicted_nbytes": made.arena.reserved_nbytes}
    for layout in layouts:
        try:
            figures[f"smallest_{layout}_nbytes"] = find_smallest(made, layout)
        except RunError as error:
            if layout == OWN_LAYOUT[made.bench.device.provider]:
                raise
            figures[f"smallest_{layout}_nbytes"] = error.message
    return Findings(
        figures,
        tuple(
            judge_ratio(
                f"predicted / smallest arena, {layout}",
                made.arena.reserved_nbytes,
                figures[f"smallest_{layout}_nbytes"],
                MOST_SHARE,
                is_judged=layout == OWN_LAYOUT[made.bench.device.provider],
            )
            for layout in layouts
        ),
    )


def find_smallest(made: ArenaBench, layout: Layout) -> int:
    """Return the smallest limit under which the plan completes, to within 2 %.

    Raises `RunError` when nothing up to six times the live bytes works.
    """
    low, high = made.arena.live_nbytes * 9 // 10, made.arena.reserved_nbytes
    with Tries(made.bench, layout) as tries:
        while tries.try_limit(made.rewritten, high) is not None:
            if high > 6 * made.arena.live_nbytes:
                raise RunError(f"nothing up to {high:,} B works")
            low, high = high, high * 5 // 4
        while high - low > high // 50:
            middle = (low + high) // 2
            if tries.try_limit(made.rewritten, middle) is None:
                high = middle
            else:
                low = middle
    return high


class Tries(LimitedRuns):
    """Runs under limits; a context.

    One child process does them all, apart from arenas of one region on CUDA: whether a second one
    can be registered in a process is not known.
    """

    def __init__(self, bench: Bench, layout: Layout) -> None:
        self._own_settings = Settings(bench.device.provider, layout=layout)
        self._own_specs = specify_inputs(bench.model)
        self._is_fresh = bench.device.provider == "cuda" and layout == "region"
        super().__init__(self._own_specs, self._own_settings)

    def try_limit(self, path: Path, limit_nbytes: int) -> str | None:
        """Return why the graph in ``path`` ran out of memory; None: three runs completed."""
        limit_nbytes = limit_nbytes // _CHUNK_NBYTES * _CHUNK_NBYTES
        limited = replace(self._own_settings, arena_limit_nbytes=limit_nbytes)
        if not self._is_fresh:
            return self.find_refusal(path, limited)
        with LimitedRuns(self._own_specs, self._own_settings) as runs:
            return runs.find_refusal(path, limited)
