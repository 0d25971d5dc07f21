"""Random layered graphs without a forward and a backward pass, as problem files.

    python bench/layered.py N_OPS WIDTH SEED PROBLEM.json

Ops stand in layers of about WIDTH; each reads two to five outputs, one of them of the layer before,
others of any earlier layer, nearer ones more often. A last op reads what nothing else reads and
makes the graph's output. Times and sizes are random: at most 1,000 ns, and mostly 500 to 4,000 B.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from checkmate.costs import Costs, Origin
from checkmate.formats.problem_json import render_problem
from checkmate.graph import Graph, Op, OpId, Tensor, TensorId
from checkmate.problem import Problem


def main() -> None:
    """Write one problem file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    for name in ("n_ops", "width", "seed"):
        parser.add_argument(name, type=int)
    parser.add_argument("path", type=Path)
    options = parser.parse_args()
    problem = make_layered(options.n_ops, options.width, options.seed)
    options.path.write_text(render_problem(problem), encoding="utf-8")


def make_layered(n_ops: int, width: int, seed: int) -> Problem:
    """Return the layered graph of ``n_ops`` ops that ``seed`` stands for."""
    rng = random.Random(seed)
    reads = _draw_reads(rng, n_ops - 1, width)
    unread = set(range(n_ops - 1)).difference(*reads)
    reads.append(sorted(unread))
    ops = tuple(
        Op(f"op{k}", tuple(map(TensorId, inputs)), (TensorId(k),)) for k, inputs in enumerate(reads)
    )
    tensors = tuple(
        Tensor(f"t{k}", 10 * max(1, round(rng.lognormvariate(4.9, 0.9))), OpId(k))
        for k in range(n_ops)
    )
    graph = Graph(f"layered-n{n_ops}-{seed}", ops, tensors, (TensorId(n_ops - 1),))
    times_ns = tuple(rng.randint(1, 1000) for _ in range(n_ops))
    return Problem(graph, Costs(times_ns, (0,) * n_ops, Origin("file")))


def _draw_reads(rng: random.Random, n_ops: int, width: int) -> list[list[int]]:
    """Return, per op in order, the ops whose outputs it reads."""
    reads: list[list[int]] = []
    layers: list[range] = []
    while len(reads) < n_ops:
        first = len(reads)
        layer = range(first, min(n_ops, first + rng.randint(1, 2 * width - 1)))
        for _ in layer:
            found = {rng.choice(layers[-1])} if layers else set()
            for _ in range(rng.randint(1, 4) if layers else 0):
                back = min(len(layers), 1 + int(len(layers) ** rng.random() - 0.5))
                found.add(rng.choice(layers[-back]))
            reads.append(sorted(found))
        layers.append(layer)
    return reads


if __name__ == "__main__":
    main()
