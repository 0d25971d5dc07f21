"""Ops that may run only once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import onnx

_RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
    | {"Multinomial", "Bernoulli"}
)
_UPDATE_DOMAINS = frozenset({"ai.onnx.preview.training", "ai.onnx.training"})
_ONCE_PHASES = frozenset({"optimizer", "stats"})


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


def find_pin(node: onnx.NodeProto, values: Mapping[str, np.ndarray]) -> str | None:
    """Return why ``node`` may run only once; None: it may be recomputed.

    Random ops are pinned with a seed too: two nodes of one seed draw equal values with the CPU
    provider, but no other provider promises it.
    """
    if any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
        return "control flow"
    if node.op_type in _RANDOM or (node.op_type == "Dropout" and _drops(node, values)):
        return "random"
    if node.op_type == "BatchNormalization" and _updates_statistics(node):
        return "running statistics"
    if node.domain in _UPDATE_DOMAINS:
        return "optimizer update"
    phases = {entry.value for entry in node.metadata_props if entry.key == "checkmate.phase"}
    return "optimizer update" if phases & _ONCE_PHASES else None


def _updates_statistics(norm: onnx.NodeProto) -> bool:
    """Return whether ``norm`` makes new running statistics.

    Where these are no graph outputs, as those of a recompute, onnxruntime's kernel writes them over
    its inputs, so that the next compute would update them once more.
    """
    is_training = any(a.name == "training_mode" and a.i for a in norm.attribute)
    return is_training or sum(map(bool, norm.output)) > 1


def _drops(dropout: onnx.NodeProto, values: Mapping[str, np.ndarray]) -> bool:
    """Return whether ``dropout`` is in training mode, as far as the file says."""
    if len(dropout.input) < 3 or not dropout.input[2]:
        return False
    training_mode = values.get(dropout.input[2])
    return training_mode is None or bool(training_mode.any())
