"""Orders of a model with recomputes at random."""

from __future__ import annotations

import random

from checkmate.graph import OpId
from checkmate.onnxio.model import Model


def draw_order(chance: random.Random, model: Model) -> list[OpId]:
    """Return the order of ``model`` with recomputes at random, alone and in runs."""
    order = [OpId(i) for i in range(len(model.graph.ops))]
    for _ in range(chance.randint(0, 8)):
        place = chance.randint(0, len(order))
        again = [op for op in sorted(set(order[:place])) if model.graph.ops[op].recomputable]
        order[place:place] = sorted(chance.sample(again, min(len(again), chance.randint(1, 5))))
    return order
