"""Where a schedule is fenced: the windows between fences, and what each must wait for.

A window is a stretch of the schedule. A fence makes its *roots* (nodes that read nothing from
within the window) wait for the *sinks* of the window before (nodes that no other node of that
window reads). Then every node of a window follows every node of the windows before it, in any
topological order.

Some nodes *float*: they may run before their window, never after it. Shapes, what is computed from
shapes alone, and views take no memory to speak of, and what they read is in memory anyway; what
reads nothing cannot wait.
"""

from __future__ import annotations

from collections.abc import Container, Sequence, Set
from itertools import pairwise
from typing import Literal

from checkmate.graph import OpId
from checkmate.onnxio.order import HOISTED_OPS, Wiring
from checkmate.onnxio.views import VIEW_OPS

Fences = Literal["none", "run", "all"]
"""Where fences stand: nowhere; before each run of recomputes; there and wherever an op does not
read what the op before it makes, so that only one order is left."""

FENCES: tuple[Fences, ...] = ("none", "run", "all")

PRODUCTS = frozenset({"FusedMatMul", "Gemm", "MatMul"})
"""Ops into which onnxruntime fuses Transposes."""


def split_windows(
    order: Sequence[OpId], wirings: Sequence[Wiring], fences: Fences
) -> tuple[range, ...]:
    """Return the positions of ``order`` in windows; ``wirings`` are the nodes of its computes."""
    starts = find_run_starts(order)
    if fences == "all":
        starts |= _find_breaks(wirings, starts)
    bounds = [0, *sorted(starts), len(order)]
    return tuple(range(*pair) for pair in pairwise(bounds))


def find_run_starts(order: Sequence[OpId]) -> set[int]:
    """Return where runs of recomputes start; a run ends where it would compute an op twice."""
    starts: set[int] = set()
    done: set[OpId] = set()
    in_run: set[OpId] = set()
    for position, op in enumerate(order):
        if op not in done:
            in_run = set()
        elif not in_run or op in in_run:
            starts.add(position)
            in_run = {op}
        else:
            in_run.add(op)
        done.add(op)
    return starts


def _find_breaks(wirings: Sequence[Wiring], run_starts: Set[int]) -> set[int]:
    """Return where a node reads nothing that the node before it makes.

    Also behind a view that waits for a fence: what holds its fence must not wait for more nodes.
    """
    starts = set(run_starts)
    for position, (before, after) in enumerate(pairwise(wirings), start=1):
        is_loose = is_view(before) or is_early(before)
        if set(before.makes).isdisjoint(after.reads) or (position - 1 in starts and is_loose):
            starts.add(position)
    return starts


def is_view(wiring: Wiring) -> bool:
    """Return whether the node makes another shape of its first input."""
    return wiring.node.domain in ("", "ai.onnx") and wiring.node.op_type in VIEW_OPS


def is_early(wiring: Wiring) -> bool:
    """Return whether no fence can or need hold the node back."""
    return not wiring.reads or wiring.node.op_type in HOISTED_OPS


def find_roots(
    window: range, wirings: Sequence[Wiring], floating: Container[int]
) -> tuple[int, ...]:
    """Return the positions of nodes that read nothing from within ``window``, but for what floats.

    ``floating`` are the positions of nodes that may float; one that reads what waits does not.
    """
    roots: list[int] = []
    held: set[str] = set()
    for position in window:
        wiring = wirings[position]
        if held.isdisjoint(wiring.reads):
            if position in floating:
                continue
            roots.append(position)
        held.update(wiring.makes)
    return tuple(roots)


def find_bypassed(windows: Sequence[range], wirings: Sequence[Wiring]) -> frozenset[str]:
    """Return what Transposes make for later windows, while in theirs but products read it.

    By default onnxruntime lets a product read what was transposed in place of what the Transpose
    makes, which then waits for nobody, and nobody for it.
    """
    window_of = {position: number for number, window in enumerate(windows) for position in window}
    readers: dict[str, list[int]] = {}
    for position, wiring in enumerate(wirings):
        for name in wiring.reads:
            readers.setdefault(name, []).append(position)
    found: set[str] = set()
    for position, wiring in enumerate(wirings):
        if wiring.node.op_type == "Transpose":
            own = window_of[position]
            read_by = readers.get(wiring.makes[0], [])
            near = [wirings[r].node.op_type for r in read_by if window_of[r] == own]
            if near and PRODUCTS.issuperset(near) and len(near) < len(read_by):
                found.update(wiring.makes)
    return frozenset(found)


def find_sinks(wirings: Sequence[Wiring]) -> tuple[int, ...]:
    """Return which nodes of a window no other node of it reads, by number from its start."""
    read = {name for wiring in wirings for name in wiring.reads}
    return tuple(i for i, wiring in enumerate(wirings) if read.isdisjoint(wiring.makes))
