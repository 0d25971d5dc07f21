"""What fences promise, of every topological order: shown by paths, without running anything."""

from __future__ import annotations

import random
from collections import Counter
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
from checkmate.onnxio.windows import Fences, find_run_starts
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


def count_readers_between_views_and_fences(nodes: Sequence[onnx.NodeProto]) -> list[int]:
    """Return how many nodes read each tensor that a view makes for a fence, or the reverse."""
    views = {node.output[0] for node in nodes if node.op_type in VIEW_OPS}
    fenced = {node.output[0] for node in nodes if node.name.startswith(PREFIX)} & views
    n_readers = Counter(name for node in nodes for name in wire(node).reads)
    pairs = ((node.input[0], node.output[0]) for node in nodes if node.output[0] in views)
    return [n_readers[x] for x, y in pairs if x in views and (x in fenced) != (y in fenced)]


@pytest.mark.parametrize("fences", ["run", "all"])
def test_a_view_and_a_fence_always_have_a_third_neighbour(fences: Fences, tmp_path: Path) -> None:
    """So that onnxruntime cannot fuse the two, and the fence with them."""
    model = read_graph("gpt2", tmp_path)
    orders = [draw_order(random.Random(seed), model) for seed in SEEDS]
    schedules = [insert_frees(model.graph, order) for order in orders]
    rewritten = [rewrite_model(model, schedule, fences).graph.node for schedule in schedules]
    counts = [n for nodes in rewritten for n in count_readers_between_views_and_fences(nodes)]
    assert min(counts) == 2


def test_a_fence_reads_what_nobody_else_reads(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        """g (float[2, 64] x) => (float y, float z) {
            left, right = Split <axis = 0, num_outputs = 2> (x)
            y = ReduceSum <keepdims = 0> (left)
            a = Relu(x)
            z = ReduceSum <keepdims = 0> (a)
        }""",
    )
    model = read_model(path, {})
    schedule = insert_frees(model.graph, [OpId(i) for i in range(4)])
    nodes = rewrite_model(model, schedule, "all").graph.node
    assert [n.name for n in nodes if "right" in n.input] == [f"{PREFIX}2_size"]


def test_a_run_ends_where_it_would_compute_an_op_twice() -> None:
    order = [OpId(i) for i in (0, 1, 2, 0, 1, 0, 3, 1, 2)]
    assert find_run_starts(order) == {3, 5, 7}
