"""What fences promise, of every topological order: shown by paths, without running anything."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import onnx
import pytest

from checkmate.graph import OpId
from checkmate.liveness import insert_frees
from checkmate.onnxio.fence_maker import PREFIX
from checkmate.onnxio.model import Model
from checkmate.onnxio.order import HOISTED_OPS, wire
from checkmate.onnxio.read import read_model
from checkmate.onnxio.rewrite import rewrite_model
from checkmate.onnxio.views import VIEW_OPS
from checkmate.onnxio.windows import find_run_starts
from onnx_models import GRAPHS, TRAINING_MLP, save

SEEDS = range(8)


def draw_order(rng: random.Random, model: Model) -> list[OpId]:
    """Return the order of the file with recomputes at random, alone and in runs."""
    order = [OpId(i) for i in range(len(model.graph.ops))]
    for _ in range(rng.randint(1, 6)):
        position = rng.randint(1, len(order))
        done = sorted(set(order[:position]))
        length = min(len(done), rng.randint(1, 4))
        order[position:position] = sorted(rng.sample(done, length))
    return order


def find_ancestors(nodes: Sequence[onnx.NodeProto]) -> list[int]:
    """Return, per node, the set of nodes that come before it in any order, as a bit mask."""
    makers: dict[str, int] = {}
    ancestors: list[int] = []
    for position, node in enumerate(nodes):
        wiring = wire(node)
        found = 0
        for maker in (makers[name] for name in wiring.reads if name in makers):
            found |= ancestors[maker] | 1 << maker
        ancestors.append(found)
        makers |= dict.fromkeys(wiring.makes, position)
    return ancestors


def read_graph(name: str, folder: Path) -> Model:
    if name == "mlp":
        return read_model(save(folder, TRAINING_MLP), {"N": 2048})
    return read_model(GRAPHS / f"{name}-tiny-bN.onnx", {"N": 64})


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["mlp", "vgg16", "gpt2"])
def test_with_all_fences_there_is_one_order(name: str, seed: int, tmp_path: Path) -> None:
    model = read_graph(name, tmp_path)
    order = draw_order(random.Random(seed), model)
    nodes = rewrite_model(model, insert_frees(model.graph, order), "all").graph.node
    ancestors = find_ancestors(nodes)
    ours = [
        position
        for position, node in enumerate(nodes)
        if node.op_type not in {*HOISTED_OPS, "Constant"} and not node.name.startswith(PREFIX)
    ]
    assert all(ancestors[after] >> before & 1 for before, after in pairwise(ours))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["mlp", "vgg16", "gpt2"])
def test_with_run_fences_nothing_passes_a_run_of_recomputes(
    name: str, seed: int, tmp_path: Path
) -> None:
    model = read_graph(name, tmp_path)
    order = draw_order(random.Random(seed), model)
    nodes = rewrite_model(model, insert_frees(model.graph, order), "run").graph.node
    ancestors = find_ancestors(nodes)
    ours = [
        position
        for position, node in enumerate(nodes)
        if node.op_type != "Constant"
        and not node.name.startswith(PREFIX)
        and not node.name.endswith("__released")
    ]
    small = {name for name, value in model.values.items() if value.size}
    assert len(ours) == len(order)
    for start in find_run_starts(order):
        before = sum(1 << position for position in ours[:start])
        for position, op in zip(ours[start:], order[start:], strict=True):
            if nodes[position].op_type not in VIEW_OPS and not small.issuperset(
                model.nodes[op].output
            ):
                assert ancestors[position] & before == before, nodes[position].name


def test_a_run_ends_where_it_would_compute_an_op_twice() -> None:
    order = [OpId(i) for i in (0, 1, 2, 0, 1, 0, 3, 1, 2)]
    assert find_run_starts(order) == {3, 5, 7}
