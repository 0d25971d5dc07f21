"""Models after edits that keep them valid: planned or refused by name, and rewritten soundly."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path

import onnx
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from checkmate.costs import unit_costs
from checkmate.errors import CheckmateError, InputError
from checkmate.liveness import insert_frees
from checkmate.onnxio.expand import expand
from checkmate.onnxio.model import Model
from checkmate.onnxio.order import name_weights, wire
from checkmate.onnxio.read import read_model
from checkmate.onnxio.rewrite import rewrite_model
from checkmate.onnxio.windows import FENCES, Fences
from checkmate.problem import Problem
from checkmate.simulate import simulate
from edits_nested import bind_dims, edited_models
from onnx_models import TRAINING_MLP, residual_mlp, save_proto
from random_orders import draw_order

HEAD = '<ir_version: 9, opset_import: ["" : 18]>'
SEEDS = [
    onnx.parser.parse_model(f"{HEAD} {text}").SerializeToString()
    for text in (TRAINING_MLP, residual_mlp(2))
]
MANY = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


def read(proto: onnx.ModelProto) -> Model | CheckmateError:
    with tempfile.TemporaryDirectory() as folder:
        try:
            return read_model(save_proto(Path(folder), proto), bind_dims(proto, 64))
        except CheckmateError as error:
            return error


def find_unmade(graph: onnx.GraphProto) -> list[str]:
    """Return what nodes read, or the graph returns, before it is made."""
    known = {*(item.name for item in graph.input), *name_weights(graph)}
    unmade: list[str] = []
    for wiring in map(wire, graph.node):
        unmade += [name for name in wiring.reads if name not in known]
        known.update(wiring.makes)
    return unmade + [item.name for item in graph.output if item.name not in known]


@MANY
@given(edited_models(SEEDS))
def test_an_edited_model_is_planned_or_refused_by_name(proto: onnx.ModelProto) -> None:
    found = read(proto)
    event(type(found).__name__)
    assert isinstance(found, Model | InputError), found


@MANY
@given(edited_models(SEEDS), st.randoms(use_true_random=False), st.sampled_from(FENCES))
def test_an_edited_model_is_rewritten_soundly(
    proto: onnx.ModelProto, chance: random.Random, fences: Fences
) -> None:
    model = read(proto)
    assume(isinstance(model, Model))
    assert isinstance(model, Model)
    problem = Problem(model.graph, unit_costs(model.graph))
    schedule = insert_frees(model.graph, draw_order(chance, model))
    event(f"recomputes: {len(schedule.order) > len(model.graph.ops)}")
    graph = rewrite_model(model, schedule, fences).graph
    made = Counter(name for node in graph.node for name in node.output if name)
    names = Counter(n.name for n in graph.node if n.name and n.op_type != "Constant")
    assert find_unmade(graph) == []
    assert set(made.values()) | set(names.values()) == {1}
    assert [item.name for item in graph.output] == [item.name for item in proto.graph.output]
    # The file frees nothing that it still needs, either.
    simulate(problem, schedule)
    simulate(*expand(problem, model, schedule, fences))


def test_most_edited_models_are_planned() -> None:
    found: list[Model | CheckmateError] = []

    @settings(MANY, derandomize=True)
    @given(edited_models(SEEDS))
    def collect(proto: onnx.ModelProto) -> None:
        found.append(read(proto))

    collect()
    assert sum(isinstance(model, Model) for model in found) > 0.6 * len(found)
