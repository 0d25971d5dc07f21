"""A plan as a schedule file."""

from __future__ import annotations

from dataclasses import dataclass

from checkmate.arena import count_outside_nbytes
from checkmate.cli.source import Source
from checkmate.engine.ordering import Order
from checkmate.formats.costs_json import digest_costs
from checkmate.formats.schedule_json import (
    GraphRecord,
    PeakRecord,
    ScheduleRecord,
    name_instructions,
)
from checkmate.onnxio.windows import Fences
from checkmate.plan import Plan
from checkmate.problem import Problem
from checkmate.runtime.advice import ADVICE
from checkmate.simulate import Simulation


@dataclass(frozen=True, slots=True)
class Held:
    """How the rewritten model holds the order, and which that is."""

    fences: Fences
    order: Order


def make_record(source: Source, plan: Plan, baseline: Simulation, held: Held) -> ScheduleRecord:
    """Return the schedule file of ``plan``, whose rewritten model is ``held`` so."""
    graph, costs = source.problem.graph, source.problem.costs
    peak = plan.peak
    return ScheduleRecord(
        graph=GraphRecord(
            graph.name, source.sha256, len(graph.ops), len(graph.tensors), source.lineage
        ),
        costs_sha256=digest_costs(graph, costs),
        origin=costs.origin,
        dims=source.dims,
        budget_nbytes=plan.budget_nbytes,
        peak_nbytes=peak.nbytes,
        baseline_peak_nbytes=baseline.peak.nbytes,
        peak=PeakRecord(
            "" if peak.op is None else graph.ops[peak.op].name,
            peak.resident_nbytes,
            peak.live_nbytes,
            peak.workspace_nbytes,
            plan.fragmentation_nbytes,
        ),
        time_ns=plan.time_ns,
        baseline_time_ns=baseline.time_ns,
        claim=plan.claim,
        runtime={**ADVICE, **_advise_limit(source.problem, plan), "fences": held.fences},
        order=held.order,
        instructions=name_instructions(graph, plan.schedule),
    )


def _advise_limit(problem: Problem, plan: Plan) -> dict[str, str]:
    """Return the limit of the arena: what the budget leaves of it to what lies outside."""
    if problem.arena is None:
        return {}
    outside_nbytes = count_outside_nbytes(problem.graph, problem.arena)
    return {"arena_limit_nbytes": str(plan.budget_nbytes - outside_nbytes)}
