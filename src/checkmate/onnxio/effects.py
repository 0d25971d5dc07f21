"""Ops that may run only once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx

from checkmate.onnxio.order import Wiring
from checkmate.onnxio.views import is_view_op

_RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
    | {"Multinomial", "Bernoulli"}
    # What onnxruntime's optimizers make of Dropout in training mode.
    | {"BiasDropout", "BitmaskBiasDropout", "BitmaskDropout"}
)
_DROPOUTS: Mapping[tuple[str, str], int] = {
    ("", "Dropout"): 2,
    ("com.microsoft", "BiasDropout"): 4,
    ("com.microsoft", "BitmaskBiasDropout"): 4,
    ("com.microsoft", "BitmaskDropout"): 2,
}
"""Per operator that drops elements: the input that says whether it does."""

SEEDED = "random, with a seed"
"""The reason of `find_pin` for ops that draw from a seed of their own.

Each kernel of onnxruntime's CPU provider has its own generator then, which goes on from run to run:
copies draw the same numbers run after run, as long as every run ends. Measured with onnxruntime
1.19.2, 1.20.1, 1.22.1, 1.31.1 and 1.32.0. No other provider promises it.
"""

_UPDATE_DOMAINS = frozenset({"ai.onnx.preview.training", "ai.onnx.training"})
_ONCE_PHASES: Mapping[str, str] = {"optimizer": "optimizer update", "stats": "statistics update"}
"""Per phase that a node says it is of, why it may run only once."""
_OVERWRITING_OPS: Mapping[str, tuple[int, ...]] = {
    "AdamOptimizer": (1, 2, 4, 5, 6),
    "BatchNormInternal": (3, 4),
    "InPlaceAccumulator": (0,),
    "InPlaceAccumulatorV2": (0,),
    "LambOptimizer": tuple(range(4, 1024)),
    "SGDOptimizer": (1,),
    "ZeroGradient": (0,),
}
"""Ops of onnxruntime's training build that write over these of their inputs."""


def find_races(nodes: Iterable[onnx.NodeProto]) -> tuple[str, ...]:
    """Return the ops whose CPU kernel loses additions when it has several threads.

    Measured with onnxruntime 1.31.1: threads of ScatterND race for elements that several indices
    name.
    """
    return tuple(
        node.name
        for node in nodes
        if node.op_type == "ScatterND"
        and any(a.name == "reduction" and a.s not in (b"", b"none") for a in node.attribute)
    )


def find_pins(
    wirings: Sequence[Wiring], values: Mapping[str, np.ndarray]
) -> tuple[str | None, ...]:
    """Return, per op in topological order, why it may run only once; None: it may run again."""
    overwritten = find_overwritten([wiring.node for wiring in wirings])
    pins: list[str | None] = []
    for wiring in wirings:
        pin = find_pin(wiring.node, values)
        if pin in (None, SEEDED) and not is_view_op(wiring.node):
            pin = pin if overwritten.isdisjoint(wiring.reads) else "reads what is written over"
        pins.append(pin)
    return tuple(pins)


def find_pin(node: onnx.NodeProto, values: Mapping[str, np.ndarray]) -> str | None:
    """Return why ``node`` may run only once; None: it may be recomputed."""
    if any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
        return "control flow"
    domain = "" if node.domain == "ai.onnx" else node.domain
    if node.op_type in _RANDOM or _drops(node, domain, values):
        return SEEDED if not domain and _has_own_generator(node) else "random"
    if node.op_type == "BatchNormalization" and _updates_statistics(node):
        return "running statistics"
    if domain in _UPDATE_DOMAINS or _find_overwriting(node):
        return "optimizer update"
    phases = (entry.value for entry in node.metadata_props if entry.key == "checkmate.phase")
    return next((_ONCE_PHASES[phase] for phase in phases if phase in _ONCE_PHASES), None)


def _has_own_generator(node: onnx.NodeProto) -> bool:
    """Return whether copies of ``node`` can draw what it draws; what reads nothing cannot wait."""
    return any(node.input) and any(attribute.name == "seed" for attribute in node.attribute)


def find_overwritten(nodes: Sequence[onnx.NodeProto]) -> frozenset[str]:
    """Return the tensors that some op writes over, and what shares their storage.

    What reads one of them reads another value later, so it may run only once. ``nodes`` are in
    topological order.
    """
    found = {node.input[i] for node in nodes for i in _find_overwriting(node)}
    for node in reversed(nodes):
        found.update(node.input[:1] if is_view_op(node) and node.output[0] in found else ())
    for node in nodes:
        found.update(node.output if is_view_op(node) and node.input[0] in found else ())
    return frozenset(found)


def _find_overwriting(node: onnx.NodeProto) -> tuple[int, ...]:
    """Return the inputs that ``node`` writes over."""
    if node.domain in ("", "ai.onnx"):
        is_norm = node.op_type == "BatchNormalization" and _updates_statistics(node)
        return (3, 4) if is_norm and len(node.input) > 4 else ()
    positions = _OVERWRITING_OPS.get(node.op_type, ()) if node.domain == "com.microsoft" else ()
    return tuple(i for i in positions if i < len(node.input) and node.input[i])


def _updates_statistics(norm: onnx.NodeProto) -> bool:
    """Return whether ``norm`` makes new running statistics.

    Where these are no graph outputs, as those of a recompute, onnxruntime's kernel writes them over
    its inputs, so that the next compute would update them once more.
    """
    is_training = any(a.name == "training_mode" and a.i for a in norm.attribute)
    return is_training or sum(map(bool, norm.output)) > 1


def _drops(node: onnx.NodeProto, domain: str, values: Mapping[str, np.ndarray]) -> bool:
    """Return whether ``node`` is a dropout in training mode, as far as the file says."""
    position = _DROPOUTS.get((domain, node.op_type))
    if position is None or len(node.input) <= position or not node.input[position]:
        return False
    training_mode = values.get(node.input[position])
    return training_mode is None or bool(training_mode.any())
