"""The order in which a run executed the ops, against the schedule."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from checkmate.onnxio.drawing import can_wait
from checkmate.onnxio.order import Wiring, wire
from checkmate.onnxio.rewrite import (
    find_chained_casts,
    name_computes,
    name_nodes,
    rewrite_nodes,
)
from checkmate.onnxio.windows import find_run_starts, is_early, is_view
from checkmate.trial.rewriting import Rewriting

_MAX_PLACES = 10


@dataclass(frozen=True, slots=True)
class Order:
    """Where an executed order left what was asked of it."""

    misplaced: tuple[tuple[str, str], ...] = ()
    """The first few pairs (scheduled op, op that ran in its place)."""
    n_fused: int = 0
    """Computes that did not run under their name: optimizers fuse ops and rename what they make."""
    n_left_out: int = 0
    """Casts that did not run, as nothing is lost without them."""
    n_elsewhere: int = 0
    """Nodes that ran on the CPU though the run was on CUDA; where they ran is not judged.

    onnxruntime moves what follows from shapes there, and runs it when nothing on CUDA is ready.
    """


def compare_exactly(
    rewriting: Rewriting, executed: tuple[str, ...], elsewhere: Collection[str] = ()
) -> Order:
    """Return where ``executed`` is not the rewritten file, node by node.

    Shape and Size run where they like, as does what ran ``elsewhere``, and Casts may be left out
    where nothing is lost in a chain of them.
    """
    nodes = rewrite_nodes(rewriting.model, rewriting.schedule, rewriting.fences)
    left_out = find_chained_casts(nodes).difference(executed)
    named = name_nodes(nodes)
    n_elsewhere = len(frozenset(elsewhere).intersection(named))
    planned = [name for name in named if name not in left_out and name not in elsewhere]
    # Nodes within the bodies of control flow are executed too.
    known = frozenset(planned)
    ran = [name for name in executed if name in known]
    length = max(len(planned), len(ran))
    padded = zip(
        planned + ["nothing"] * (length - len(planned)),
        ran + ["nothing"] * (length - len(ran)),
        strict=True,
    )
    misplaced = tuple(pair for pair in padded if pair[0] != pair[1])[:_MAX_PLACES]
    return Order(misplaced, n_left_out=len(left_out), n_elsewhere=n_elsewhere)


def compare_computes(
    rewriting: Rewriting, executed: tuple[str, ...], elsewhere: Collection[str] = ()
) -> Order:
    """Return where the ops that ran under their names left the order of the schedule.

    Shape and Size run where they like, as does what ran ``elsewhere``, and without fences what
    reads nothing.
    """

    def floats(wiring: Wiring) -> bool:
        return is_early(wiring) and not (rewriting.fences == "all" and can_wait(wiring.node))

    ranks = _rank(rewriting, range(len(rewriting.schedule.order)), floats)
    return _compare(ranks, executed, elsewhere)


def compare_windows(
    rewriting: Rewriting, executed: tuple[str, ...], elsewhere: Collection[str] = ()
) -> Order:
    """Return where ops that ran under their names passed the start of a run of recomputes.

    Views, and what follows from shapes alone, may come early; what ran ``elsewhere``, at any time.
    """
    starts = find_run_starts(rewriting.schedule.order)
    windows: list[int] = []
    for position in range(len(rewriting.schedule.order)):
        windows.append((windows[-1] if windows else 0) + (position in starts))
    values = rewriting.model.values

    def floats(wiring: Wiring) -> bool:
        return is_early(wiring) or is_view(wiring) or all(n in values for n in wiring.makes)

    return _compare(_rank(rewriting, windows, floats), executed, elsewhere)


def _rank(
    rewriting: Rewriting, ranks: range | list[int], floats: Callable[[Wiring], bool]
) -> dict[str, int]:
    """Return the rank of each compute by the name of its node, without those that float."""
    order = rewriting.schedule.order
    wirings = [wire(node) for node in rewriting.model.nodes]
    names = name_computes(rewriting.model, rewriting.schedule)
    computes = zip(names, order, ranks, strict=True)
    return {name: rank for name, op, rank in computes if not floats(wirings[op])}


def _compare(ranks: dict[str, int], executed: tuple[str, ...], elsewhere: Collection[str]) -> Order:
    """Return the neighbours of which the second should have run before the first."""
    known = [name for name in executed if name in ranks]
    ran = [name for name in known if name not in elsewhere]
    misplaced: list[tuple[str, str]] = []
    last = ran[0] if ran else ""
    for name in ran:
        if ranks[name] < ranks[last]:
            misplaced.append((name, last))
        else:
            last = name
    n_elsewhere = len(frozenset(elsewhere).intersection(known))
    n_fused = len(ranks) - len(frozenset(known))
    return Order(tuple(misplaced[:_MAX_PLACES]), n_fused, n_elsewhere=n_elsewhere)
