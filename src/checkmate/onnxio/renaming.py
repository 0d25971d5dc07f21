"""Nodes that read other tensors than before."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from checkmate.onnxio.order import list_bodies, name_weights


def rename_reads(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Make ``node``, subgraphs included, read ``names[x]`` in place of ``x``."""
    for position, name in enumerate(node.input):
        node.input[position] = names.get(name, name)
    for graph in list_bodies(node):
        _rename_captures(graph, names)


def _rename_captures(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    own = {*(item.name for item in graph.input), *name_weights(graph)}
    own.update(name for node in graph.node for name in node.output)
    outer = {old: new for old, new in names.items() if old not in own}
    for node in graph.node:
        rename_reads(node, outer)
    for output in graph.output:
        output.name = outer.get(output.name, output.name)
