"""Schedules solved and run for tests of what ``check --run`` proves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from checkmate.cli.fencing import Choice, solve_fenced
from checkmate.cli.record import Held, make_record
from checkmate.cli.source import Asked, Source, read_source
from checkmate.engine.ordering import choose_order
from checkmate.engine.solve import run_baseline
from checkmate.engine.written import Search
from checkmate.formats.schedule_json import Optimization, ScheduleRecord
from checkmate.plan import Plan
from checkmate.runtime.protocol import Manner
from checkmate.search.finding import Limits
from checkmate.trial.judgement import Judgement, Terms, judge
from checkmate.trial.rewriting import Rewriting
from checkmate.trial.runs import MANNERS, Trial, run_trial


@dataclass(frozen=True)
class Solved:
    """A model, its plan, and the schedule file of it."""

    source: Source
    plan: Plan
    record: ScheduleRecord
    rewriting: Rewriting


def solve_file(
    path: Path,
    percent: int,
    *,
    fences: Choice = "all",
    arena: bool = False,
    dims: dict[str, int] | None = None,
    strategy: str = "auto",
    optimize: Optimization = "none",
    provider: Literal["auto", "cpu"] = "auto",
) -> Solved:
    """Return the model in ``path`` solved for a share of its peak without recompute.

    Costs are counted from shapes, so its ops must need no workspace.
    """
    source = read_source(path, Asked(dims or {}, None, "flops", provider, arena, optimize))
    assert source.model is not None
    baseline = run_baseline(source.problem)
    search = Search(baseline.peak.nbytes * percent // 100, strategy, Limits())
    in_order = choose_order(source.problem, "file")
    plan, held = solve_fenced(source, in_order, search, fences)
    record = make_record(source, plan, baseline, Held(held, "file"))
    return Solved(source, plan, record, Rewriting(source.model, plan.schedule, held))


def run(solved: Solved, manners: tuple[Manner, ...] = MANNERS) -> Trial:
    """Return what both graphs do on the CPU."""
    return run_trial(solved.rewriting, solved.record, "cpu", manners)


def judge_trial(solved: Solved, trial: Trial, budget_nbytes: int | None = None) -> Judgement:
    """Return the verdicts, by default with the budget of the schedule and nothing above."""
    budget = solved.record.budget_nbytes if budget_nbytes is None else budget_nbytes
    return judge(trial, Terms(budget, 0.0, solved.rewriting.fences))
