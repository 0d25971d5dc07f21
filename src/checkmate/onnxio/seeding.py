"""Random ops with seeds: those of the model, and those given to compare two graphs."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import onnx

from checkmate.graph import OpId
from checkmate.onnxio.cutting import render_whole
from checkmate.onnxio.drawing import find_outer
from checkmate.onnxio.effects import SEEDED, find_pins
from checkmate.onnxio.model import Model
from checkmate.onnxio.order import wire
from checkmate.onnxio.sanity import walk_graphs

_RANDOM_OPS = frozenset(
    {"Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike"}
    | {"RandomUniform", "RandomUniformLike"}
)


def find_seeded(model: Model) -> tuple[OpId, ...]:
    """Return the ops that would be pinned for nothing but that they draw from a seed."""
    if not any(a.name == "seed" for node in model.nodes for a in node.attribute):
        return ()
    pins = find_pins([wire(node) for node in model.nodes], model.values)
    return tuple(OpId(i) for i, pin in enumerate(pins) if pin == SEEDED)


def free_seeded(model: Model) -> Model:
    """Return ``model`` as it is on the CPU alone: ops that draw from a seed may run again."""
    ops = list(model.graph.ops)
    for op in find_seeded(model):
        ops[op] = replace(ops[op], recomputable=True)
    return replace(model, graph=replace(model.graph, ops=tuple(ops)))


def is_random(model: Model) -> bool:
    """Return whether some op of ``model``, in a body too, draws other numbers in each session."""
    return any(map(_is_unseeded, _walk_nodes(model.proto)))


def render_seeded(proto: onnx.ModelProto, source: Path) -> bytes:
    """Return ``proto`` as a file in which each random node without a seed has one.

    ``source`` is the file that it was read from, or made from what was. The seed follows from the
    name of what the node makes: the same in each graph that makes that tensor, while a copy of the
    node gets another. What is drawn twice is not the same twice, as without.
    """
    seeded = onnx.ModelProto()
    seeded.CopyFrom(proto)
    for node in _walk_nodes(seeded):
        if _is_unseeded(node):
            # Twenty bits are exact as a float too.
            seed = zlib.crc32(find_outer(node.output[0]).encode()) >> 12
            value = seed if node.op_type == "Dropout" else float(seed)
            node.attribute.append(onnx.helper.make_attribute("seed", value))
    return render_whole(seeded, source)


def _walk_nodes(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    return (node for graph in walk_graphs(proto.graph) for node in graph.node)


def _is_unseeded(node: onnx.NodeProto) -> bool:
    """Return whether ``node`` is random and has no seed; Dropout is so in training mode alone."""
    is_known = node.domain in ("", "ai.onnx") and node.op_type in _RANDOM_OPS
    can_draw = node.op_type != "Dropout" or (len(node.input) > 2 and bool(node.input[2]))
    return is_known and can_draw and all(a.name != "seed" for a in node.attribute)
