"""Random problems that put a chain of stages to the test, beside `builders.random_training`."""

from __future__ import annotations

import random

from builders import OpSpec, op, problem, random_training
from checkmate.folding import fold_views
from checkmate.liveness import insert_frees
from checkmate.problem import Problem
from checkmate.search.bound import smallest_conceivable_nbytes
from checkmate.simulate import simulate


def random_chain(rng: random.Random, n_forward: int) -> Problem:
    """Return a random problem with what makes chains hard.

    Several roots, skips, ops with two outputs, workspace, ops that run once, forward graph outputs;
    in the backward pass forward ops (some that run once, some outputs) and gradients of the rest.
    """
    specs: list[OpSpec] = []
    forward: list[str] = []
    outputs: list[str] = []
    for i in range(n_forward):
        near = forward[-3:]
        reads = rng.sample(near, k=min(len(near), rng.choice((0, 1, 1, 1, 2, 2))))
        specs.append(_make(rng, f"f{i}", reads or ["x"]))
        forward += specs[-1].makes
        outputs += [f"f{i}"] if rng.random() < 0.08 else []
    gradient = ""
    for i in range(n_forward):
        late: list[str] = []
        if rng.random() < 0.5:
            specs.append(_make(rng, f"t{i}", [rng.choice([*forward, "x"])]))
            late = list(specs[-1].makes)
            outputs += late if rng.random() < 0.1 else []
        saved = rng.sample(forward, k=rng.choice((0, 1, 1, 2)) if gradient else 1)
        saved += late if rng.random() < 0.4 else []
        forward += late
        makes = {f"b{i}": rng.randint(1, 5)}
        if rng.random() < 0.3:
            makes[f"w{i}"] = rng.randint(1, 2)
            outputs.append(f"w{i}")
        specs.append(
            op(f"b{i}", " ".join((gradient, *saved)), makes=makes, time_ns=rng.randint(1, 9),
               workspace_nbytes=rng.choice((0, 0, 2)), backward=True)
        )  # fmt: skip
        gradient = f"b{i}"
    outputs.append(gradient)
    return problem(*specs, outputs=" ".join(dict.fromkeys(outputs)), resident={"x": 1})


def random_deep(rng: random.Random) -> Problem:
    """Return a random problem whose first op has two outputs that most gradients need indirectly.

    The first gradients read late forward tensors, the last ones early ones, so that recomputes
    within one step of a gradient leave long gaps in which only deep ones read and make the rest.
    """
    n_forward = rng.choice((3, 4))
    specs = [
        op(
            "p",
            "x",
            makes={"p": rng.randint(1, 4), "q": rng.randint(1, 4)},
            time_ns=rng.randint(3, 9),
        )
    ]
    second = rng.randrange(1, n_forward)
    for i in range(1, n_forward):
        reads = f"f{i - 1}" if i > 1 else "p"
        reads += " q" if i == second else ""
        specs.append(op(f"f{i}", reads, nbytes=rng.randint(1, 6), time_ns=rng.randint(0, 3)))
    gradient = ""
    late = [f"f{i}" for i in range(max(1, n_forward - 2), n_forward)]
    for i in range(rng.choice((2, 3))):
        specs.append(_make_gradient(rng, f"b{i}", gradient, rng.choice(late)))
        gradient = f"b{i}"
    for early in rng.sample(("p", "q"), k=2):
        specs.append(_make_gradient(rng, f"d{early}", gradient, early))
        gradient = f"d{early}"
    return problem(*specs, outputs=gradient, resident={"x": 1})


def random_gaps(rng: random.Random) -> Problem:
    """Return a random problem in which most gradients read the last of a few forward tensors."""
    n_forward = rng.choice((4, 5, 6))
    specs: list[OpSpec] = []
    for i in range(n_forward):
        near = [spec.name for spec in specs[-2:]]
        reads = rng.sample(near, k=min(len(near), rng.choice((1, 1, 2))))
        specs.append(
            op(f"f{i}", " ".join(reads or ["x"]), nbytes=rng.randint(1, 6),
               time_ns=rng.randint(1, 9), workspace_nbytes=rng.choice((0, 0, 4)))
        )  # fmt: skip
    gradient = ""
    for i in range(rng.choice((3, 4, 5))):
        saved = rng.choice((n_forward - 1, n_forward - 1, n_forward - 2, rng.randrange(n_forward)))
        is_read = rng.random() < 0.8 or not gradient
        specs.append(_make_gradient(rng, f"b{i}", gradient, f"f{saved}" if is_read else ""))
        gradient = f"b{i}"
    return problem(*specs, outputs=gradient, resident={"x": 1})


def _make_gradient(rng: random.Random, name: str, above: str, saved: str) -> OpSpec:
    return op(name, f"{above} {saved}", nbytes=rng.randint(1, 6), time_ns=1,
              workspace_nbytes=rng.choice((0, 0, 3)), backward=True)  # fmt: skip


def _make(rng: random.Random, name: str, reads: list[str]) -> OpSpec:
    makes = {name: rng.randint(1, 6)}
    if rng.random() < 0.25:
        makes[f"{name}m"] = rng.randint(1, 4)
    return op(
        name,
        " ".join(reads),
        makes=makes,
        time_ns=rng.randint(0, 9),
        workspace_nbytes=rng.choice((0, 0, 0, 3)),
        recomputable=rng.random() > 0.07,
    )


def draw_chain(seed: int) -> tuple[Problem, int]:
    """Return a random problem without views, and a budget that may be too small for it."""
    rng = random.Random(seed)
    shapes = (
        lambda: random_training(rng, rng.choice((3, 3, 3, 4))),
        lambda: random_chain(rng, rng.choice((3, 3, 3, 4))),
        lambda: random_deep(rng),
    )
    return draw_budget(rng, shapes[seed % 3]())


def draw_budget(rng: random.Random, drawn: Problem) -> tuple[Problem, int]:
    """Return ``drawn`` without views, and a budget that may be too small for it."""
    small = fold_views(drawn).folded
    least_nbytes, _ = smallest_conceivable_nbytes(small)
    in_order = insert_frees(small.graph, range(len(small.graph.ops)))  # type: ignore[arg-type]
    most_nbytes = simulate(small, in_order).peak.nbytes - 1
    return small, rng.randint(least_nbytes, max(least_nbytes, most_nbytes))
