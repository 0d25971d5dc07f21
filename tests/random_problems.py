"""Random problems of all shapes, each the same for its seed.

Training-shaped and layered ones, chains, and mixed ones; with two outputs, views of views, of
resident tensors and with computed shapes, workspace, ops that run once, tensors without bytes, ops
without cost, tensors that nothing reads, several roots, forward ops between the gradients.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from builders import OpSpec, op, problem, view
from checkmate.folding import fold_views
from checkmate.graph import OpId
from checkmate.heuristics.greedy import find_smallest_budget
from checkmate.liveness import insert_frees
from checkmate.problem import Problem
from checkmate.search.bound import smallest_conceivable_nbytes
from checkmate.simulate import simulate

SMALL, LARGE = (3, 8), (9, 30)
"""Ops drawn, without views."""


@dataclass(frozen=True, slots=True)
class Taste:
    """How often an op of one problem has something special."""

    twin: float
    """A second output."""
    pinned: float
    """Runs once."""
    works: float
    """Needs workspace."""
    viewed: float
    """Is followed by a view of what it makes."""
    empty: float
    """Makes tensors without bytes, or costs nothing."""
    skips: float
    """Reads something far back."""
    most_nbytes: int


@dataclass(slots=True)
class _Draft:
    rng: random.Random
    taste: Taste
    specs: list[OpSpec] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    """What may be read: tensors and views, the resident ones first."""


def draw_problem(seed: int, *, is_small: bool) -> Problem:
    """Return the problem that ``seed`` stands for."""
    rng = random.Random(seed)
    n_ops = rng.randint(*(SMALL if is_small else LARGE))
    draft = _Draft(rng, _draw_taste(rng), made=["x", "y"])
    shape = rng.choice((_draw_training, _draw_training, _draw_layered, _draw_chain, _draw_mixed))
    shape(draft, n_ops)
    outputs = _draw_outputs(draft)
    resident = {"x": rng.randint(0, 3), "y": rng.randint(0, 3)}
    return problem(*draft.specs, outputs=" ".join(outputs), resident=resident, name=f"seed{seed}")


def draw_budgets(seed: int, drawn: Problem, n: int) -> list[int]:
    """Return ``n`` budgets, ascending, up to the peak without recompute.

    One of them may be too small; in the others the first of the greedy searches finds something.
    """
    rng = random.Random(f"budgets of {seed}")
    folded = fold_views(drawn).folded
    least_nbytes, _ = smallest_conceivable_nbytes(folded)
    known_nbytes, _ = find_smallest_budget(folded, 1)
    order = [OpId(k) for k in range(len(drawn.graph.ops))]
    most_nbytes = simulate(drawn, insert_frees(drawn.graph, order)).peak.nbytes
    found = [rng.randint(min(known_nbytes, most_nbytes), most_nbytes) for _ in range(n - 1)]
    return sorted([*found, rng.randint(max(0, least_nbytes - 1), max(least_nbytes, most_nbytes))])


def _draw_taste(rng: random.Random) -> Taste:
    def often(most: float) -> float:
        return rng.choice((0.0, most / 2, most))

    return Taste(
        twin=often(0.4), pinned=often(0.3), works=often(0.4), viewed=often(0.4), empty=often(0.2),
        skips=often(0.5), most_nbytes=rng.choice((1, 6, 6, 50, 10**9)),
    )  # fmt: skip


def _draw_training(draft: _Draft, n_ops: int) -> None:
    """Forward with skips, then gradients that read what the one before made, and some of it."""
    rng = draft.rng
    n_forward = max(2, n_ops // 2)
    for i in range(n_forward):
        _add(draft, f"f{i}", _choose(draft, near=1 + (rng.random() < draft.taste.skips)))
    forward = list(draft.made)
    gradient = ""
    for i in reversed(range(max(1, n_ops - n_forward))):
        if rng.random() < 0.15:
            _add(draft, f"t{i}", [rng.choice(forward)])
        near = forward[-1 - min(i, len(forward) - 1)]
        saved = [near, *rng.sample(forward, k=rng.choice((0, 0, 1)))]
        reads = [name for name in (gradient, *saved) if name]
        gradient = _add(draft, f"b{i}", reads, backward=True)


def _draw_chain(draft: _Draft, n_ops: int) -> None:
    """One op after the other, each reads the last tensor."""
    for i in range(n_ops):
        _add(draft, f"o{i}", draft.made[-1:])


def _draw_layered(draft: _Draft, n_ops: int) -> None:
    """Layers of some ops, which read the layer before and at times an older one."""
    rng = draft.rng
    width = rng.randint(1, max(1, n_ops // 3))
    before = list(draft.made)
    i = 0
    while i < n_ops:
        layer = []
        for _ in range(min(n_ops - i, rng.randint(1, width))):
            old = rng.sample(draft.made, k=int(rng.random() < draft.taste.skips))
            reads = rng.sample(before, k=min(len(before), rng.choice((1, 1, 2, 3))))
            layer.append(_add(draft, f"o{i}", [*reads, *old]))
            i += 1
        before = layer


def _draw_mixed(draft: _Draft, n_ops: int) -> None:
    """Anything reads anything; some ops say that they are backward, wherever they stand."""
    rng = draft.rng
    says = rng.choice((0.0, 0.0, 0.3))
    for i in range(n_ops):
        reads = _choose(draft, near=rng.choice((0, 1, 2, 3)))
        _add(draft, f"o{i}", reads, backward=rng.random() < says)


def _choose(draft: _Draft, near: int) -> list[str]:
    """Return what an op reads: some of the last tensors, and perhaps one far back."""
    rng = draft.rng
    found = rng.sample(draft.made[-4:], k=min(len(draft.made[-4:]), near))
    if rng.random() < draft.taste.skips:
        found.append(rng.choice(draft.made))
    return found


def _add(draft: _Draft, name: str, reads: Sequence[str], *, backward: bool = False) -> str:
    """Add an op, and perhaps a view of it; returns what the next may read."""
    rng, taste = draft.rng, draft.taste
    makes = {name: _draw_nbytes(draft)}
    if rng.random() < taste.twin:
        makes[f"{name}m"] = _draw_nbytes(draft)
    draft.specs.append(
        op(
            name,
            " ".join(dict.fromkeys(reads)),
            makes=makes,
            time_ns=0 if rng.random() < taste.empty else rng.randint(1, 9),
            workspace_nbytes=_draw_nbytes(draft) if rng.random() < taste.works else 0,
            recomputable=rng.random() >= taste.pinned,
            backward=backward,
        )
    )
    draft.made.extend(makes)
    last = name
    while rng.random() < taste.viewed and len(last) < 8:
        others = rng.choice(draft.made) if rng.random() < 0.1 else ""
        source = rng.choice((last, last, rng.choice(draft.made)))
        last += "v"
        others = "" if others in (source, last) else others
        draft.specs.append(view(last, source, others, time_ns=rng.choice((0, 0, 1))))
        draft.made.append(last)
    return last


def _draw_nbytes(draft: _Draft) -> int:
    if draft.rng.random() < draft.taste.empty:
        return 0
    return draft.rng.randint(1, draft.taste.most_nbytes)


def _draw_outputs(draft: _Draft) -> list[str]:
    """Return what is unread, for the most part, and at times something that is read."""
    read = {name for spec in draft.specs for name in spec.reads}
    made = [name for name in draft.made if name not in ("x", "y")]
    found = [name for name in made if name not in read and draft.rng.random() < 0.8]
    found += draft.rng.sample(made, k=int(draft.rng.random() < 0.2))
    return list(dict.fromkeys(found or made[-1:]))
