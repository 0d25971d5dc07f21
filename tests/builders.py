"""Small problems: by hand, one line an op, and at random, shaped like training."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from checkmate.costs import Costs, Origin
from checkmate.graph import Graph, Op, OpId, Tensor, TensorId
from checkmate.problem import Problem


@dataclass(frozen=True)
class OpSpec:
    """One op by the names of its tensors; ``makes`` gives the bytes of each output."""

    name: str
    reads: tuple[str, ...]
    makes: Mapping[str, int]
    time_ns: int = 1
    workspace_nbytes: int = 0
    recomputable: bool = True
    backward: bool = False
    view_of: str | None = None


def op(name: str, reads: str = "", /, **options: object) -> OpSpec:
    """Return the op ``name``; it makes ``makes``, or one tensor of its name."""
    nbytes = options.pop("nbytes", 1)
    makes = options.pop("makes", {name: nbytes})
    return OpSpec(name, tuple(reads.split()), makes, **options)  # type: ignore[arg-type]


def view(name: str, source: str, others: str = "", /, **options: object) -> OpSpec:
    """Return a view op of ``source`` that also reads ``others``."""
    return op(name, f"{source} {others}", nbytes=0, view_of=source, **options)


def problem(
    *ops: OpSpec, outputs: str, resident: Mapping[str, int] | None = None, name: str = "small"
) -> Problem:
    """Return the problem of ``ops``, in this order."""
    tensors = [Tensor(n, nbytes, None) for n, nbytes in (resident or {}).items()]
    ids = {tensor.name: TensorId(i) for i, tensor in enumerate(tensors)}
    nodes: list[Op] = []
    for position, spec in enumerate(ops):
        for made, nbytes in spec.makes.items():
            ids[made] = TensorId(len(tensors))
            source = None if spec.view_of is None else ids[spec.view_of]
            tensors.append(Tensor(made, nbytes, OpId(position), source))
        nodes.append(
            Op(
                spec.name,
                tuple(ids[read] for read in dict.fromkeys(spec.reads)),
                tuple(ids[made] for made in spec.makes),
                spec.recomputable,
                spec.backward,
            )
        )
    graph = Graph(name, tuple(nodes), tuple(tensors), tuple(ids[o] for o in outputs.split()))
    costs = Costs(
        tuple(spec.time_ns for spec in ops),
        tuple(spec.workspace_nbytes for spec in ops),
        Origin("file"),
    )
    return Problem(graph, costs)


def chain(*nbytes: int) -> Problem:
    """Return ops ``op0 -> op1 -> ...`` whose outputs have these sizes; the last is the output."""
    specs = [op(f"op{i}", f"op{i - 1}" if i else "", nbytes=size) for i, size in enumerate(nbytes)]
    return problem(*specs, outputs=f"op{len(nbytes) - 1}", name="chain")


def training_chain(n_layers: int) -> Problem:
    """Return the paper's linear network: ``n_layers`` forward ops, a loss, their backward ops.

    All costs and sizes are 1. The gradient of layer i reads the gradient of layer i + 1 and the
    output of layer i.
    """
    specs = [op(f"f{i}", f"f{i - 1}" if i else "") for i in range(n_layers)]
    specs.append(op("loss", f"f{n_layers - 1}"))
    for i in reversed(range(n_layers)):
        above = f"b{i + 1}" if i < n_layers - 1 else "loss"
        specs.append(op(f"b{i}", f"{above} f{i}", backward=True))
    return problem(*specs, outputs="b0", name="training-chain")


@dataclass
class _Draft:
    specs: list[OpSpec] = field(default_factory=list)
    owners: list[str] = field(default_factory=list)
    """Forward tensors that later ops may read."""


def random_training(rng: random.Random, n_forward: int) -> Problem:
    """Return a random problem shaped like training: forward with skips, loss, backward.

    Some ops have two outputs, workspace, or may run only once; some tensors are views.
    """
    draft = _Draft()
    for i in range(n_forward):
        _add_forward(rng, draft, i)
    draft.specs.append(op("loss", draft.owners[-1], nbytes=1, time_ns=1))
    gradient, outputs = "loss", ["loss"]
    for i in reversed(range(n_forward)):
        saved = rng.sample(draft.owners, k=min(len(draft.owners), rng.choice((1, 1, 2))))
        makes = {f"b{i}": rng.randint(1, 6)}
        if rng.random() < 0.3:
            makes[f"w{i}"] = rng.randint(1, 2)
            outputs.append(f"w{i}")
        draft.specs.append(
            op(f"b{i}", " ".join((gradient, *saved)), makes=makes, time_ns=rng.randint(1, 9),
               recomputable=rng.random() > 0.1, backward=True)
        )  # fmt: skip
        gradient = f"b{i}"
    if rng.random() < 0.5:
        outputs.append(gradient)
    return problem(
        *draft.specs, outputs=" ".join(outputs), resident={"x": rng.randint(0, 3)}, name="random"
    )


def _add_forward(rng: random.Random, draft: _Draft, i: int) -> None:
    reads: Sequence[str] = draft.owners[-1:] or ["x"]
    if len(draft.owners) > 1 and rng.random() < 0.3:
        reads = [*reads, rng.choice(draft.owners[:-1])]
    makes = {f"f{i}": rng.randint(1, 6)}
    if rng.random() < 0.2:
        makes[f"m{i}"] = rng.randint(1, 3)
    draft.specs.append(
        op(f"f{i}", " ".join(reads), makes=makes, time_ns=rng.randint(0, 9),
           workspace_nbytes=rng.choice((0, 0, 0, 2)), recomputable=rng.random() > 0.1)
    )  # fmt: skip
    draft.owners.extend(makes)
    if rng.random() < 0.25:
        draft.specs.append(view(f"v{i}", f"f{i}", time_ns=0))
        draft.owners.append(f"v{i}")


def scale(problem: Problem, factor: int) -> Problem:
    """Return ``problem`` with all bytes times ``factor``."""
    graph, costs = problem.graph, problem.costs
    tensors = tuple(replace(t, nbytes=t.nbytes * factor) for t in graph.tensors)
    workspace_nbytes = tuple(nbytes * factor for nbytes in costs.workspace_nbytes)
    return Problem(
        replace(graph, tensors=tensors), replace(costs, workspace_nbytes=workspace_nbytes)
    )
