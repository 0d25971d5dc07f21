"""A plan: a schedule that was verified, with what is proved about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from checkmate.arena import count_budget_nbytes, is_within
from checkmate.errors import InternalError
from checkmate.problem import Problem
from checkmate.schedule import Schedule
from checkmate.simulate import Peak, simulate

Space = Literal["all-schedules", "frontier-advancing", "chain-of-stages"]
"""Among which schedules a bound holds: any that run every op at least once; those that the
paper's formulation describes (stages end with the first run of the next op in file order, and
within a stage each op runs at most once, in file order); or those of them that recompute only
forward ops, and these only in the backward pass, just before an op that reads forward tensors and
descends from them."""

Termination = Literal["optimal", "gap", "limit", "interrupted"]
"""Why a search ended: nothing is better; the gap is small enough; a limit; the user."""


@dataclass(frozen=True, slots=True)
class SolverInfo:
    """The solver behind a plan; empty when none ran."""

    name: str = ""
    version: str = ""
    threads: int = 0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Claim:
    """What a search says of its schedule; believed only as far as `certify` can check it."""

    strategy: str
    space: Space
    bound_ns: int
    termination: Termination
    solver: SolverInfo = SolverInfo()


@dataclass(frozen=True, slots=True)
class Plan:
    """A verified schedule; only `certify` makes one."""

    schedule: Schedule
    budget_nbytes: int
    peak: Peak
    time_ns: int
    claim: Claim
    fragmentation_nbytes: int = 0
    """What the arena takes beyond the peak; zero where bytes alone count."""

    @property
    def gap(self) -> float:
        """How far above the bound the time is, as a fraction of the bound."""
        bound_ns = self.claim.bound_ns
        return (self.time_ns - bound_ns) / bound_ns if bound_ns else float(self.time_ns > 0)


def certify(problem: Problem, schedule: Schedule, budget_nbytes: int, claim: Claim) -> Plan:
    """Return the plan that ``schedule`` is, after running it in the simulator.

    Raises `InternalError` when its peak is above ``budget_nbytes``, in bytes or in the arena of
    ``problem``, or its time is below the bound that was claimed, and `ScheduleError` when it
    cannot run at all.
    """
    simulation = simulate(problem, schedule)
    if simulation.peak.nbytes > budget_nbytes:
        raise InternalError(
            f"{claim.strategy} returned a schedule of {simulation.peak.nbytes} B"
            f" for a budget of {budget_nbytes} B"
        )
    if simulation.time_ns < claim.bound_ns:
        raise InternalError(
            f"{claim.strategy} claims that no schedule takes less than {claim.bound_ns} ns,"
            f" but its own takes {simulation.time_ns} ns"
        )
    if not is_within(problem, schedule, budget_nbytes):
        raise InternalError(
            f"{claim.strategy} returned a schedule whose arena does not fit in {budget_nbytes} B"
        )
    taken_nbytes = min(budget_nbytes, count_budget_nbytes(problem, schedule))
    fragmentation_nbytes = max(0, taken_nbytes - simulation.peak.nbytes)
    return Plan(
        schedule, budget_nbytes, simulation.peak, simulation.time_ns, claim, fragmentation_nbytes
    )
