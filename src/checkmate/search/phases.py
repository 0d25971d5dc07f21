"""The phases that `auto` goes through."""

from __future__ import annotations

from checkmate.errors import InfeasibleError
from checkmate.heuristics.greedy import improve_within, make_failure
from checkmate.heuristics.keep_all import order_all
from checkmate.milp.chain import arrange
from checkmate.problem import Problem
from checkmate.search.chain_search import Report
from checkmate.search.exact import solve_exact
from checkmate.search.exhaust import find_any_order
from checkmate.search.finding import Finding
from checkmate.search.frontier_bound import bound_frontier
from checkmate.search.local import Effort, anneal
from checkmate.search.pipeline import Phase
from checkmate.search.rounds import improve_in_rounds, polish_in_rounds
from checkmate.search.stages import begin_stages
from checkmate.search.standing import Order, Standing
from checkmate.units import format_nbytes_exactly

GREEDY_EFFORT = 8
"""Parameter sets that the greedy tries."""
GREEDY_MOST_RUNS = 80_000
"""Ops that it runs, one parameter set after the other: a huge graph is tried with fewer of them."""
EXACT_MAX_OPS = 200
"""Up to this many ops the paper's program is tried: its size grows with their square."""

ANNEALING_PATIENCE = 5
"""Rounds of annealing in a row without success after which it ends; each is longer than the one
before."""
ANNEALING_CHUNKS = 300
"""Chunks of annealing before programs are solved, and again when the gap is reached: a second or
two at 1,000 ops."""


def _keep_all(standing: Standing) -> None:
    standing.offer(order_all(standing.problem), "keep-all")


def _run_greedy(standing: Standing) -> None:
    """Offer what each parameter set leads to, as long as there is time; the first in any case."""
    best = None
    affordable = GREEDY_MOST_RUNS // max(1, len(standing.problem.graph.ops))
    effort = max(1, min(GREEDY_EFFORT, affordable))
    for n_tried, found in enumerate(
        improve_within(standing.problem, standing.budget_nbytes, effort)
    ):
        if best is None or found.order != best.order:
            best = found
            standing.offer(found.order, "greedy")
        if n_tried and (standing.is_ended or standing.is_out_of_time):
            break
    if best is not None and best.peak_nbytes <= standing.budget_nbytes:
        standing.draft = best.order
    elif best is not None:
        raise make_failure(standing.problem, standing.budget_nbytes, best)


def _relax_stages(standing: Standing) -> None:
    """Learn the first bound of chains of stages."""
    if standing.order is None:
        return
    standing.chains = begin_stages(standing.problem, standing.budget_nbytes)
    standing.chains.relax(standing.limits, _make_report(standing))


def _solve_stages(standing: Standing) -> None:
    problem, budget_nbytes = standing.problem, standing.budget_nbytes
    search = standing.chains or begin_stages(problem, budget_nbytes)
    _take(standing, search.run(standing.limits, standing.order, _make_report(standing)))


def _make_report(standing: Standing) -> Report:
    def report(order: Order | None, bound_ns: int) -> None:
        standing.raise_bound("chain-of-stages", bound_ns)
        if order is not None:
            standing.offer(order, "stages")

    return report


def _solve_exactly(standing: Standing) -> None:
    def learn(bound_ns: int) -> None:
        standing.raise_bound("frontier-advancing", bound_ns)

    problem, budget_nbytes = standing.problem, standing.budget_nbytes
    _take(standing, solve_exact(problem, budget_nbytes, standing.limits, standing.order, learn))


def _exhaust(standing: Standing) -> None:
    """Offer anything that fits, or prove that nothing does, when nothing was found."""
    if standing.best is not None:
        return
    order = find_any_order(standing.problem, standing.budget_nbytes)
    if order is None:
        budget = format_nbytes_exactly(standing.budget_nbytes)
        raise InfeasibleError(f"no schedule of this op order fits in {budget}")
    standing.offer(order, "exhaustive")


def _anneal(standing: Standing) -> None:
    _anneal_draft(standing, Effort(ANNEALING_PATIENCE, ANNEALING_CHUNKS))
    anneal(standing, Effort(ANNEALING_PATIENCE))


def _anneal_on(standing: Standing) -> None:
    anneal(standing, Effort(4 * ANNEALING_PATIENCE))


def _anneal_briefly(standing: Standing) -> None:
    anneal(standing, Effort(ANNEALING_PATIENCE, ANNEALING_CHUNKS))


def _polish(standing: Standing) -> None:
    effort = Effort(ANNEALING_PATIENCE, ANNEALING_CHUNKS, ends_when_good=False)
    _anneal_draft(standing, effort)
    anneal(standing, effort)
    polish_in_rounds(standing)


def _anneal_draft(standing: Standing, effort: Effort) -> None:
    """Begin from what the greedy found: from what programs led to, other orders are far."""
    if standing.draft is not None:
        anneal(standing, effort, standing.draft)


def _bound_frontier(standing: Standing) -> None:
    def learn(bound_ns: int) -> bool:
        standing.raise_bound("frontier-advancing", bound_ns)
        return not standing.is_ended

    bound_frontier(standing.problem, standing.budget_nbytes, standing.limits, learn)


def _take(standing: Standing, finding: Finding) -> None:
    standing.offer(finding.order, finding.claim.strategy)
    if finding.claim.termination == "interrupted":
        standing.interrupt()


def _has_stages(problem: Problem) -> bool:
    return arrange(problem.graph) is not None


def _is_small(problem: Problem) -> bool:
    return len(problem.graph.ops) <= EXACT_MAX_OPS


KEEP_ALL = Phase("keep-all", _keep_all, is_stubborn=True)
GREEDY = Phase("greedy", _run_greedy, is_stubborn=True)
STAGES = Phase("stages", _solve_stages, _has_stages, 8.0, is_stubborn=True)
EXACT = Phase("exact", _solve_exactly, _is_small)
ANNEAL = Phase("anneal", _anneal, is_stubborn=True)
ANNEAL_ON = Phase("anneal", _anneal_on, is_stubborn=True)
RELAX = Phase("relax", _relax_stages, _has_stages, 8.0)
ANNEAL_BRIEFLY = Phase("anneal", _anneal_briefly)
POLISH = Phase("polish", _polish, is_polish=True)
BOUND = Phase("bound", _bound_frontier)
ROUNDS = Phase("rounds", improve_in_rounds, weight=1.5)
EXHAUSTIVE = Phase("exhaustive", _exhaust, _is_small, 0.1, is_stubborn=True)

AUTO = (
    KEEP_ALL,
    GREEDY,
    RELAX,
    ANNEAL_BRIEFLY,
    STAGES,
    ANNEAL,
    BOUND,
    EXACT,
    EXHAUSTIVE,
    ROUNDS,
    POLISH,
)
"""The cheap before the dear; bounds of the narrow space before those of the wide."""
