"""The choice of fences: asked for, possible, written down and read again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, get_args

import click

from checkmate.arena import count_budget_nbytes, is_within
from checkmate.cli.report import echo_note
from checkmate.cli.source import Source
from checkmate.engine.clock import Clock
from checkmate.engine.ordering import restore_plan
from checkmate.engine.reserve import FindNeed, NoRoomError, solve_with_room
from checkmate.engine.solve import Hints, run_baseline, solve
from checkmate.errors import NotFoundError
from checkmate.folding import fold_views
from checkmate.formats.schedule_json import ScheduleRecord
from checkmate.graph import OpId
from checkmate.heuristics.keep_all import order_all
from checkmate.liveness import insert_frees
from checkmate.onnxio.expand import expand
from checkmate.onnxio.fences import find_obstacle, parse_fences
from checkmate.onnxio.windows import Fences
from checkmate.placement import CHUNK_NBYTES
from checkmate.plan import Plan, certify
from checkmate.problem import Problem
from checkmate.reordering import Reordering
from checkmate.schedule import Schedule
from checkmate.search.finding import Limits
from checkmate.simulate import simulate
from checkmate.units import format_nbytes_exactly

_KEPT_NBYTES = 1024
"""Default options keep dead tensors for later ones of their shape. With all fences, few shapes are
known before the run, those of small tensors: at most 432 bytes were measured."""
_BARE_SHARE = 0.75
"""Of the time, for a search without fences; the rest makes room for what the file adds."""

Choice = Literal["auto", "none", "run", "all"]
"""What may be asked for."""

fences_option = click.option(
    "--fences",
    type=click.Choice(get_args(Choice)),
    default="auto",
    show_default=True,
    help="Where the written model holds its order by itself; auto: all, on CUDA run.",
)


def choose_fences(source: Source, asked: Choice) -> Fences:
    """Return what was ``asked`` for, or none, with a notice, where the model cannot have any.

    ``auto`` is all fences, which alone hold the peak under default options; but for costs of CUDA
    those before runs of recomputes, as there each fence makes the host wait for the device.
    """
    if source.model is not None and asked != "none":
        obstacle = find_obstacle(source.model, source.problem.costs.origin.provider)
        if obstacle is not None:
            echo_note(
                f"no fences: {obstacle}; run the model with the options that the schedule names"
            )
    return foresee_fences(source, asked)


def foresee_fences(source: Source, asked: Choice) -> Fences:
    """Return what `choose_fences` does, without a word."""
    provider = source.problem.costs.origin.provider
    if source.model is None or asked == "none" or find_obstacle(source.model, provider):
        return "none"
    if asked == "auto":
        return "run" if provider == "cuda" else "all"
    return asked


@dataclass(frozen=True, slots=True)
class Search:
    """What to search for, and how long."""

    budget_nbytes: int
    strategy: str
    limits: Limits
    start: tuple[OpId, ...] = ()
    """An order, without views, than which no plan is to be slower."""


def solve_fenced(
    source: Source, reordering: Reordering, search: Search, asked: Choice
) -> tuple[Plan, Fences]:
    """Return a plan that stays within its budget with its fences, and which these are.

    It is searched for in the order of ``reordering``. Where ``auto`` finds no room for fences,
    there are none, with a notice.
    """
    fences = choose_fences(source, asked)
    bare = reordering
    reordering = adapt_order(reordering, fences)
    problem = reordering.reordered
    clock = Clock(search.limits)
    if source.model is None or fences == "none" or _asks_nothing(source, bare, search, asked):
        return restore_plan(bare, _solve_bare(source, bare, search, None)), "none"
    find_need = _make_find_need(source, reordering, search.budget_nbytes, fences)
    plan, held = _leave_room(problem, search, find_need, asked)
    if held:
        return restore_plan(reordering, plan), fences
    rest = replace(search, limits=clock.take())
    return restore_plan(bare, _solve_bare(source, bare, rest, plan)), "none"


def _asks_nothing(source: Source, bare: Reordering, search: Search, asked: Choice) -> bool:
    """Return whether nothing has to be recomputed but to make room for fences that may go.

    Says so where it is.
    """
    if asked != "auto" or search.start:
        return False
    budget_nbytes, fences = search.budget_nbytes, foresee_fences(source, asked)
    if run_baseline(bare.reordered).peak.nbytes > budget_nbytes:
        return False
    needs = [count_kept_nbytes(source, bare, way, budget_nbytes) for way in ("none", fences)]
    if not needs[0] <= budget_nbytes < needs[1]:
        return False
    echo_note(
        "no fences: the graph fits in the budget as it is, and with them it needs"
        f" {format_nbytes_exactly(needs[1])}; run with the options that the schedule names"
    )
    return True


def _solve_bare(source: Source, reordering: Reordering, search: Search, found: Plan | None) -> Plan:
    """Return a plan that stays within its budget without fences; ``found`` where it does.

    Without them too a file is more than its schedule: what nobody reads gets a reader.
    """
    problem, clock = reordering.reordered, Clock(search.limits)
    how = (search.budget_nbytes, search.strategy)
    is_done = source.model is None or problem.arena is None
    if found is None:
        limits = clock.take(1.0 if is_done else _BARE_SHARE)
        found = solve(problem, *how, limits, Hints(search.start))
    if is_done:
        return found
    find_need = _make_find_need(source, reordering, search.budget_nbytes, "none")
    if find_need(found.schedule) <= search.budget_nbytes:
        return found
    try:
        return solve_with_room(problem, *how, clock.take(), find_need)
    except NoRoomError as error:
        needed_nbytes = find_need(error.plan.schedule)
        raise NotFoundError(
            "no schedule was found whose file runs in an arena within"
            f" {format_nbytes_exactly(search.budget_nbytes)}",
            hint=f"the smallest budget known to work is {format_nbytes_exactly(needed_nbytes)}",
        ) from error


def adapt_order(reordering: Reordering, fences: Fences) -> Reordering:
    """Return ``reordering`` with both of its problems as they are with ``fences``."""
    return replace(
        reordering,
        original=adapt(reordering.original, fences),
        reordered=adapt(reordering.reordered, fences),
    )


def count_fenced_nbytes(
    source: Source, reordering: Reordering, fences: Fences, order: Sequence[OpId], nbytes: int
) -> int:
    """Return the budget that ``order`` needs with ``fences``; without them it is ``nbytes``."""
    if source.model is None or fences == "none":
        return nbytes
    problem = reordering.reordered
    schedule = insert_frees(problem.graph, fold_views(problem).unfold(order))
    return max(nbytes, _make_find_need(source, reordering, nbytes, fences)(schedule))


def count_kept_nbytes(source: Source, reordering: Reordering, fences: Fences, nbytes: int) -> int:
    """Return the budget that the graph needs with ``fences`` when nothing is recomputed.

    At least ``nbytes``, the budget in which it is tried first.
    """
    if source.model is None:
        return nbytes
    adapted = adapt_order(reordering, fences)
    problem = adapted.reordered
    schedule = insert_frees(problem.graph, order_all(problem))
    return max(nbytes, _make_find_need(source, adapted, nbytes, fences)(schedule))


def adapt(problem: Problem, fences: Fences) -> Problem:
    """Return ``problem`` as it is with ``fences``.

    Behind all of them onnxruntime knows few shapes before the run, so that hardly any output takes
    over the storage of an input.
    """
    if problem.arena is None or fences != "all":
        return problem
    return replace(problem, arena=replace(problem.arena, in_place={}))


def _leave_room(
    problem: Problem, search: Search, find_need: FindNeed, asked: Choice
) -> tuple[Plan, bool]:
    """Return a plan, and whether there is room for its fences, of which ``auto`` can do without."""
    how = (search.budget_nbytes, search.strategy, search.limits)
    try:
        if not search.start or asked != "auto":
            return solve_with_room(problem, *how, find_need), True
        plan = solve(problem, *how, Hints(search.start))
        for fitting in (plan, _take_start(problem, search, plan)):
            if fitting is not None and find_need(fitting.schedule) <= search.budget_nbytes:
                return fitting, True
        reason = "the smallest budget leaves no room for them"
    except NoRoomError as error:
        if asked != "auto":
            raise
        plan, reason = error.plan, error.message
    echo_note(f"no fences: {reason}; run with the options that the schedule names")
    return plan, False


def _take_start(problem: Problem, search: Search, plan: Plan) -> Plan | None:
    """Return the plan that the search began from, with what is proved of ``plan``."""
    schedule = insert_frees(problem.graph, fold_views(problem).unfold(search.start))
    if not is_within(problem, schedule, search.budget_nbytes):
        return None
    # It may be ahead of the space of the bound, and then of the plan too.
    bound_ns = min(plan.claim.bound_ns, simulate(problem, schedule).time_ns)
    claim = replace(plan.claim, strategy="start", bound_ns=bound_ns, termination="limit")
    return certify(problem, schedule, search.budget_nbytes, claim)


def _make_find_need(
    source: Source, reordering: Reordering, budget_nbytes: int, fences: Fences
) -> FindNeed:
    """Return what tells the smallest budget in which a schedule runs with ``fences``."""
    model = source.model
    assert model is not None

    # A plan is looked at when it is found and again when it is chosen.
    @lru_cache(maxsize=4)
    def find_need(schedule: Schedule) -> int:
        expanded, run = expand(source.problem, model, reordering.restore(schedule), fences)
        kept_nbytes = _KEPT_NBYTES if fences == "all" else 0
        peak_nbytes = simulate(expanded, run).peak.nbytes + kept_nbytes
        if is_within(expanded, run, budget_nbytes):
            return peak_nbytes
        return max(peak_nbytes, count_budget_nbytes(expanded, run), budget_nbytes + CHUNK_NBYTES)

    return find_need


def read_fences(record: ScheduleRecord) -> Fences:
    """Return the fences of the model that belongs to ``record``."""
    return parse_fences(record.runtime.get("fences", "none"))
