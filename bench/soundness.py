"""Many random problems through `solve`: whether its plans fit, its bounds and refusals hold.

    PYTHONPATH=tests python bench/soundness.py [--seeds 0:10000] [--budgets 2] [--time-limit 0.5]
                                               [--seconds 280] [--workers]

Every problem (see `random_problems.py`; of five, four have at most 8 ops, not counting views) is
solved at a few budgets, the small ones with a gap of 0, the others with 1 %. Checked are

- each schedule, by a machine of this file: it runs, fits, and takes the time that is said;
- each bound and each refusal against every schedule that was found for the same problem: none that
  fits is faster than a bound of its space, or exists where nothing was to fit;
- bounds, optima and refusals of small problems against all frontier-advancing schedules and all
  chains of stages, by the programs of the tests that try them all;
- that no part of a search failed or contradicted another, which the search would survive.

Prints each finding with its seed, which draws the same problem again, then counts. HiGHS runs in
this process, which saves most of the time, unless --workers asks for its own as always.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from chain_oracle import find_best_chain
from checkmate.engine.min_budget import find_min_budget
from checkmate.engine.solve import solve
from checkmate.errors import CheckmateError, InfeasibleError, NoneInSpaceError, NotFoundError
from checkmate.folding import Folding, fold_views
from checkmate.graph import OpId
from checkmate.milp.chain import arrange
from checkmate.milp.model import FloatArray, Program
from checkmate.plan import Plan, Space
from checkmate.problem import Problem
from checkmate.schedule import Compute, Schedule
from checkmate.search import exact, frontier_bound, rounding, smallest, stages
from checkmate.search.finding import Limits
from checkmate.search.progress import Progress
from checkmate.search.standing import MEMBERS
from checkmate.solver.highs import solve_program
from checkmate.solver.result import MilpResult, Settings
from oracle import find_best_time
from random_problems import draw_budgets, draw_problem

GAP = 0.01
MOST_BRUTE_OPS = 9
"""Ops, without views, of the problems of which all schedules are tried."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one budget led to."""

    budget_nbytes: int
    plan: Plan | None
    error: CheckmateError | None

    @property
    def refused(self) -> Space | None:
        """The space in which it was proved that nothing fits."""
        if isinstance(self.error, InfeasibleError):
            return "all-schedules"
        if isinstance(self.error, NoneInSpaceError):
            named = (space for space in MEMBERS if space in self.error.message)
            return next(named)
        return None


@dataclass(slots=True)
class Case:
    """A problem, what was found of it, and what is wrong with that."""

    seed: int
    folding: Folding
    attempts: list[Attempt] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def tell(self, progress: Progress) -> None:
        """Listen to a search; how far it is does not matter."""

    def warn(self, text: str) -> None:
        """Listen to a search of which a part failed."""
        self.faults.append(text)


def main() -> None:
    """Print what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", default="0:10000", help="first:last + 1")
    parser.add_argument("--budgets", type=int, default=2)
    parser.add_argument("--time-limit", type=float, default=0.5)
    parser.add_argument("--seconds", type=float, default=math.inf, help="ends early after these")
    parser.add_argument("--workers", action="store_true", help="HiGHS in processes of its own")
    options = parser.parse_args()
    if not options.workers:
        solve_in_this_process()
    counts: Counter[str] = Counter()
    first, last = map(int, options.seeds.split(":"))
    began_s = time.monotonic()
    for seed in range(first, last):
        if time.monotonic() - began_s > options.seconds:
            last = seed
            break
        case = try_problem(seed, options.budgets, options.time_limit)
        counts.update(count(case))
        for fault in case.faults:
            print(f"seed {seed}: {fault}", flush=True)
    print(f"seeds {first}:{last}, {time.monotonic() - began_s:.0f} s")
    for what, number in sorted(counts.items()):
        print(f"{number:7} {what}")
    sys.exit(counts["problems with a fault"] > 0)


def solve_in_this_process() -> None:
    """Let programs be solved without a process of their own."""

    def solve_here(
        program: Program, settings: Settings, start: FloatArray | None = None
    ) -> MilpResult:
        return solve_program(program, settings, start)

    for module in (exact, frontier_bound, rounding, smallest, stages):
        module.solve_in_worker = solve_here  # type: ignore[attr-defined]


def try_problem(seed: int, n_budgets: int, time_s: float) -> Case:
    """Solve one problem at some budgets and check what comes back."""
    is_small = seed % 5 > 0
    problem = draw_problem(seed, is_small=is_small)
    case = Case(seed, fold_views(problem))
    limits = Limits(0.0 if is_small else GAP, time_s, listener=case)
    for budget_nbytes in draw_budgets(seed, problem, n_budgets):
        case.attempts.append(attempt(problem, budget_nbytes, limits))
    for tried in case.attempts:
        case.faults += check_alone(problem, tried)
    case.faults += check_together(case)
    case.faults += check_smallest(case, limits)
    if len(case.folding.folded.graph.ops) <= MOST_BRUTE_OPS:
        for tried in case.attempts:
            case.faults += check_by_brute_force(case.folding, tried)
    return case


def attempt(problem: Problem, budget_nbytes: int, limits: Limits) -> Attempt:
    """Return what `solve` does at one budget."""
    try:
        return Attempt(budget_nbytes, solve(problem, budget_nbytes, "auto", limits), None)
    except CheckmateError as error:
        return Attempt(budget_nbytes, None, error)


def check_alone(problem: Problem, tried: Attempt) -> Iterator[str]:
    """Yield what is wrong with one result."""
    plan, error = tried.plan, tried.error
    if error is not None and not isinstance(error, InfeasibleError | NotFoundError):
        yield f"{tried.budget_nbytes} B: {type(error).__name__}: {error.message}"
    if plan is None:
        return
    if plan.claim.bound_ns > plan.time_ns:
        yield f"{tried.budget_nbytes} B: bound {plan.claim.bound_ns} above {plan.time_ns}"
    try:
        peak_nbytes, time_ns = run(problem, plan.schedule)
    except ValueError as fault:
        yield f"{tried.budget_nbytes} B: {fault}"
        return
    if peak_nbytes > tried.budget_nbytes or peak_nbytes != plan.peak.nbytes:
        yield f"{tried.budget_nbytes} B: takes {peak_nbytes}, said to take {plan.peak.nbytes}"
    if time_ns != plan.time_ns:
        yield f"{tried.budget_nbytes} B: takes {time_ns} ns, said to take {plan.time_ns}"


def run(problem: Problem, schedule: Schedule) -> tuple[int, int]:
    """Return peak and time of a schedule; raises `ValueError` when it cannot run.

    Memory is counted anew at each compute, from which storages are held.
    """
    graph, costs = problem.graph, problem.costs
    resident = [e for e, tensor in enumerate(graph.tensors) if tensor.producer is None]
    holds = {e: (e, 0) for e in resident}  # per tensor its storage, by owner and how often made
    n_runs = [0] * len(graph.ops)
    peak_nbytes = sum(graph.tensors[e].nbytes for e in holds)
    for step in schedule.instructions:
        if not isinstance(step, Compute):
            del holds[step.tensor]
            continue
        op = graph.ops[step.op]
        n_runs[step.op] += 1
        if any(e not in holds for e in op.inputs) or any(e in holds for e in op.outputs):
            raise ValueError(f"{op.name} cannot run")
        for e in op.outputs:
            source = graph.tensors[e].source
            holds[e] = (e, n_runs[step.op]) if source is None else holds[source]
        used_nbytes = sum(graph.tensors[owner].nbytes for owner, _ in set(holds.values()))
        peak_nbytes = max(peak_nbytes, used_nbytes + costs.workspace_nbytes[step.op])
    is_right = all(n == 1 or op.recomputable for n, op in zip(n_runs, graph.ops, strict=True))
    if not is_right or 0 in n_runs or any(e not in holds for e in graph.outputs):
        raise ValueError("it does not end, or runs an op too often")
    return peak_nbytes, sum(n * ns for n, ns in zip(n_runs, costs.time_ns, strict=True))


def check_together(case: Case) -> Iterator[str]:
    """Yield the plans that show that a bound or a refusal of another budget is wrong."""
    graph = case.folding.folded.graph
    for shown in case.attempts:
        if shown.plan is None:
            continue
        order = case.folding.fold(shown.plan.schedule.order)
        for tried in case.attempts:
            if shown.plan.peak.nbytes > tried.budget_nbytes:
                continue
            space = tried.refused or (tried.plan.claim.space if tried.plan else None)
            if space is None or not MEMBERS[space](graph, order):
                continue
            if tried.refused:
                yield (
                    f"{tried.budget_nbytes} B: refused ({space}), but the plan for"
                    f" {shown.budget_nbytes} takes {shown.plan.peak.nbytes}"
                )
            elif tried.plan and tried.plan.claim.bound_ns > shown.plan.time_ns:
                yield (
                    f"{tried.budget_nbytes} B: bound {tried.plan.claim.bound_ns} ({space}), but the"
                    f" plan for {shown.budget_nbytes} fits and takes {shown.plan.time_ns}"
                )


def check_smallest(case: Case, limits: Limits) -> Iterator[str]:
    """Yield what contradicts the smallest budget, or what it contradicts."""
    found = find_min_budget(case.folding.original, limits)
    for tried in case.attempts:
        if tried.refused == "all-schedules" and found.nbytes <= tried.budget_nbytes:
            yield f"{tried.budget_nbytes} B: refused, but {found.nbytes} is known to work"
        if tried.plan is None:
            continue
        if tried.plan.peak.nbytes < found.bound_nbytes:
            yield f"{found.bound_nbytes} B is needed, but a plan takes {tried.plan.peak.nbytes}"
        order = case.folding.fold(tried.plan.schedule.order)
        is_chain = MEMBERS["chain-of-stages"](case.folding.folded.graph, order)
        if is_chain and tried.plan.peak.nbytes < found.chain_bound_nbytes:
            yield (
                f"a chain needs {found.chain_bound_nbytes} B, but one takes"
                f" {tried.plan.peak.nbytes}"
            )


def check_by_brute_force(folding: Folding, tried: Attempt) -> Iterator[str]:
    """Yield what trying all schedules contradicts."""
    folded = folding.folded
    best_ns = find_best_time(folded, tried.budget_nbytes)
    yield from check_best("frontier-advancing", folding, tried, best_ns)
    if arrange(folded.graph) is not None:
        chain = find_best_chain(folded, tried.budget_nbytes)
        yield from check_best("chain-of-stages", folding, tried, chain and chain[0])


def check_best(
    space: Space, folding: Folding, tried: Attempt, best_ns: int | None
) -> Iterator[str]:
    """Yield what the best time in ``space`` contradicts; None: nothing in it fits."""
    spaces = list(MEMBERS)
    head = f"{tried.budget_nbytes} B: best of {space} {best_ns}"
    if tried.refused and spaces.index(tried.refused) <= spaces.index(space):
        if best_ns is not None:
            yield f"{head}, but nothing {tried.refused} was to fit"
    elif tried.plan is not None and best_ns is not None:
        claim = tried.plan.claim
        if spaces.index(claim.space) <= spaces.index(space):
            # Each view that is folded runs at least once; more often where its storage is remade.
            if claim.bound_ns - folding.view_ns > best_ns and claim.termination != "optimal":
                yield f"{head}, but the bound is {claim.bound_ns} ({claim.space})"
            is_exact = folding.view_ns == 0 and claim.termination == "optimal"
            if is_exact and tried.plan.time_ns > best_ns:
                yield f"{head}, but {tried.plan.time_ns} was to be the best ({claim.space})"


def count(case: Case) -> Iterator[str]:
    """Yield what to count of a case."""
    yield "problems"
    if case.faults:
        yield "problems with a fault"
    for tried in case.attempts:
        yield "solves"
        if tried.plan is None:
            yield f"{type(tried.error).__name__}"
        else:
            claim = tried.plan.claim
            yield f"{claim.termination}, {claim.space}"
            yield (
                "plans that recompute" if is_recomputing(case, tried.plan) else "plans that do not"
            )


def is_recomputing(case: Case, plan: Plan) -> bool:
    """Return whether a plan runs an op twice that is not a view."""
    order: Sequence[OpId] = case.folding.fold(plan.schedule.order)
    return len(order) > len(set(order))


if __name__ == "__main__":
    main()
