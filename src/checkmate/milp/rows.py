"""The rows of the program, one function a family; its name says the sentence.

The formulation is that of Jain, Jain, Nrusimha, Gholami, Abbeel, Keutzer, Stoica and Gonzalez,
"Checkmate: Breaking the Memory Wall with Optimal Tensor Rematerialization", MLSys 2020, section
4, equations 1 to 9, for ops with several outputs of different sizes and with workspace. It
differs in how it says when memory is freed; `docs/formulation.md` proves that the schedules are
the same and that no linear relaxation is weaker for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from checkmate.milp.frame import Frame, walk_memory
from checkmate.milp.model import Rows

Family = Callable[[Frame, Rows], None]


def add_input_rows(frame: Frame, rows: Rows) -> None:
    """Require an op that runs to have its inputs, each retained into the stage or made in it."""
    columns, graph = frame.columns, frame.graph
    for (t, i), run in columns.run.items():
        for e in graph.ops[i].inputs:
            if graph.tensors[e].producer is not None:
                rows.add_at_most(run, _find_sources(frame, t, e))


def add_retention_rows(frame: Frame, rows: Rows) -> None:
    """Require a tensor retained out of a stage to be retained into it, or made in it."""
    for (t, e), retain in frame.columns.retain.items():
        if t - 1 != frame.graph.tensors[e].producer:
            rows.add_at_most(retain, _find_sources(frame, t - 1, e))


def add_need_rows(frame: Frame, rows: Rows) -> None:
    """Require a tensor to be needed as long as a later reader runs or the next stage has it."""
    columns = frame.columns
    for (t, _), need in columns.need.items():
        for position, (k, column) in enumerate(need[:-1]):
            reader, later = columns.run[t, k], need[position + 1][1]
            if column not in (reader, later):
                rows.add_at_most(reader, [column])
                rows.add_at_most(later, [column])


def add_memory_rows(frame: Frame, rows: Rows) -> None:
    """Require what is in memory to fit in the budget while an op may run."""
    columns = frame.columns
    for t in range(len(frame.graph.ops)):
        for k, memory in walk_memory(frame.graph, columns, t):
            terms = [(column, frame.sizes[e]) for e, column in memory if frame.sizes[e]]
            rows.add([*terms, (columns.run[t, k], frame.transient[k])], frame.room)


FAMILIES: Mapping[str, Family] = {
    "input": add_input_rows,
    "retention": add_retention_rows,
    "need": add_need_rows,
    "memory": add_memory_rows,
}


def _find_sources(frame: Frame, t: int, e: int) -> list[int]:
    """Return the columns of ``e`` being retained into stage ``t`` and of being made in it."""
    columns, producer = frame.columns, frame.graph.tensors[e].producer
    assert producer is not None
    sources = (columns.retain.get((t, e)), columns.run.get((t, producer)))
    return [column for column in sources if column is not None]
