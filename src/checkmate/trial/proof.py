"""The hard proof: in an arena that cannot grow past the budget, one graph runs, the other does not.

The limit is the budget less what lies outside of the arena: the inputs, which the caller holds,
and on the CPU the initializers, which a session reads where the file has them. Outputs lie in the
arena and are let go of before the next run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from checkmate.arena import count_outside_nbytes
from checkmate.formats.schedule_json import ScheduleRecord
from checkmate.onnxio.model import Model
from checkmate.onnxio.storage import find_arena_rules
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.limited import LimitedRuns
from checkmate.runtime.protocol import Settings
from checkmate.trial.rewriting import Files


@dataclass(frozen=True, slots=True)
class Proof:
    """What runs in a limited arena did, three in a row in one session."""

    limit_nbytes: int
    is_planned: bool
    """The schedule was solved for this limit."""
    refusal: str | None
    """What the rewritten graph ended with; None: it completed all runs."""
    smallest_nbytes: int | None
    """The smallest limit found in which it completes; None: it was not looked for, or not found."""
    original_refusal: str | None
    """What the original ended with; None: it completed all runs."""
    original_live_nbytes: int | None
    """What the original asks for at its peak, beside what the caller holds; None: unknown."""

    @property
    def is_original_too_large(self) -> bool:
        """Return whether the original cannot complete, as it asks for more than the limit."""
        live_nbytes = self.original_live_nbytes
        return live_nbytes is not None and live_nbytes > self.limit_nbytes


@dataclass(frozen=True, slots=True)
class Held:
    """What both graphs took without a limit."""

    original_nbytes: int | None
    """At the peak, beside what the caller holds; None: nothing measured it."""
    rewritten_nbytes: int | None


def prove(
    model: Model, files: Files, record: ScheduleRecord, settings: Settings, held: Held
) -> Proof | None:
    """Run both files of ``model`` under the limit; None: the budget leaves nothing to limit."""
    outside_nbytes = count_outside_nbytes(model.graph, find_arena_rules(model, settings.provider))
    limit_nbytes = record.budget_nbytes - outside_nbytes
    if limit_nbytes <= 0:
        return None
    is_planned = "arena_limit_nbytes" in record.runtime and settings.provider == (
        record.origin.provider or "cpu"
    )
    limited = replace(settings, arena_limit_nbytes=limit_nbytes)
    with LimitedRuns(specify_inputs(model), settings) as runs:
        refusal = runs.find_refusal(files.rewritten, limited)
        smallest_nbytes = None
        if refusal is not None:
            lower_nbytes = held.rewritten_nbytes or 0
            smallest_nbytes = runs.find_smallest(files.rewritten, limit_nbytes, lower_nbytes)
        original_refusal = runs.find_refusal(files.original, limited)
    return Proof(
        limit_nbytes,
        is_planned,
        refusal,
        smallest_nbytes,
        original_refusal,
        held.original_nbytes,
    )
