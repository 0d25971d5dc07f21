"""From what a search finds in a problem without its views to a draft of the problem itself."""

from __future__ import annotations

from dataclasses import replace

from checkmate.engine.tighten import Draft, halve_time
from checkmate.errors import InfeasibleError, NoneInSpaceError, NotFoundError, UnsuitableError
from checkmate.folding import Folding
from checkmate.liveness import remove_unread
from checkmate.plan import Claim, Space
from checkmate.search.claims import find_termination
from checkmate.search.finding import Finding, Limits
from checkmate.search.strategies import Strategy
from checkmate.simulate import simulate
from checkmate.units import format_nbytes_exactly


def make_draft(folding: Folding, finding: Finding) -> Draft:
    """Return what ``finding``, of the folded problem, is with its views."""
    problem = folding.original
    order = remove_unread(folding.folded.graph, finding.order)
    schedule = folding.lay_out(order)
    time_ns = simulate(problem, schedule).time_ns
    return Draft(schedule, time_ns, _raise_bound(finding.claim, folding.view_ns, time_ns))


def find_with_shapes(folding: Folding, search: Strategy, live_nbytes: int, limits: Limits) -> Draft:
    """Return what ``search`` finds for a problem in which views read computed shapes.

    The folded problem holds shapes for too long. Given as much more memory, what it proves holds
    for the problem itself, and its schedule may fit; if not, one is looked for without. Either
    search has half of the time.
    """
    halved = halve_time(limits)
    wide = None
    try:
        more_nbytes = live_nbytes + folding.spare_nbytes
        wide = make_draft(folding, search(folding.folded, more_nbytes, halved))
    except (UnsuitableError, InfeasibleError):
        return make_draft(folding, search(folding.folded, live_nbytes, halved))  # says so too
    except NotFoundError:
        pass  # it is looked for with less, which proves nothing
    if wide and simulate(folding.original, wide.schedule).peak.nbytes <= live_nbytes:
        return wide
    try:
        narrow = make_draft(folding, search(folding.folded, live_nbytes, halved))
    except (InfeasibleError, NoneInSpaceError) as error:
        budget = format_nbytes_exactly(live_nbytes)
        message = f"no schedule found that fits in {budget}"
        raise NotFoundError(message, hint="raise --budget") from error
    return _claim_less(folding, limits, narrow, wide)


def _claim_less(folding: Folding, limits: Limits, narrow: Draft, wide: Draft | None) -> Draft:
    """Return ``narrow`` with the bound of ``wide``."""
    space: Space = "all-schedules"
    bound_ns = folding.original.costs.total_ns
    if wide is not None:
        space, bound_ns = wide.claim.space, min(wide.claim.bound_ns, narrow.time_ns)
    termination = find_termination(
        narrow.time_ns,
        bound_ns,
        limits,
        interrupted=narrow.claim.termination == "interrupted",
    )
    claim = replace(narrow.claim, space=space, bound_ns=bound_ns, termination=termination)
    return replace(narrow, claim=claim)


def _raise_bound(claim: Claim, view_ns: int, time_ns: int) -> Claim:
    """Return ``claim`` with the time of the views in its bound.

    Leaving out what is unread may put a schedule outside the space of the bound and ahead of it;
    then nothing in that space is faster, which is the claim.
    """
    bound_ns = claim.bound_ns + view_ns
    if time_ns <= bound_ns:
        return replace(claim, bound_ns=time_ns, termination="optimal")
    return replace(claim, bound_ns=bound_ns)
