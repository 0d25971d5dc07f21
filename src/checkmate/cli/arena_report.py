"""What a schedule file says of the arena."""

from __future__ import annotations

from checkmate.formats.schedule_json import ScheduleRecord


def make_arena_document(record: ScheduleRecord) -> dict[str, object]:
    """Return ``arena`` for ``--json``; nothing when the schedule was not made for one.

    The limit under ``runtime`` is the mark of one that was; what it leaves of the budget, the
    caller or the session holds outside of the arena.
    """
    limit = record.runtime.get("arena_limit_nbytes", "")
    if not limit.isascii() or not limit.isdigit():
        return {}
    held_nbytes = record.budget_nbytes - int(limit)
    fragmentation_nbytes = record.peak.fragmentation_nbytes
    return {
        "arena": {
            "limit_nbytes": int(limit),
            "peak_nbytes": record.peak_nbytes + fragmentation_nbytes - held_nbytes,
            "fragmentation_nbytes": fragmentation_nbytes,
            "held_nbytes": held_nbytes,
        }
    }
