"""Names in use, and names that two things have of which each needs its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import onnx

from checkmate.onnxio.order import list_bodies, name_weights
from checkmate.onnxio.renaming import rename_reads
from checkmate.onnxio.sanity import walk_graphs


def find_names(graph: onnx.GraphProto, nodes: Iterable[onnx.NodeProto] = ()) -> set[str]:
    """Return every name of ``graph`` and of ``nodes``, those within subgraphs included."""
    names = set(_list_own(graph))
    names.update(item.name for item in (*graph.output, *graph.value_info))
    for node in (*graph.node, *nodes):
        names.update((node.name, *node.input, *node.output))
        for inner in list_bodies(node):
            names |= find_names(inner)
    return names


def find_namesake(proto: onnx.ModelProto) -> str | None:
    """Return a name that two nodes of one graph have, which onnxruntime refuses; None: none.

    Constants, which it takes for initializers, may have any.
    """
    for graph in walk_graphs(proto.graph):
        name = _find_repeated(graph)
        if name is not None:
            return name
    return None


def _find_repeated(graph: onnx.GraphProto) -> str | None:
    seen: set[str] = set()
    for node in graph.node:
        if node.name in seen:
            return str(node.name)
        seen.update([node.name] if node.name and node.op_type != "Constant" else [])
    return None


def part_bodies(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return ``proto`` with names in bodies that nothing else has.

    ONNX forbids a body the tensors' names of a graph around it. onnxruntime takes them while the
    node with the body comes before the other tensor, which a schedule may change. Nodes of a body
    that share a name lose it.
    """
    outer = set(_list_own(proto.graph))
    is_shared = any(_find_repeated(body) is not None for body in _list_inner(proto))
    if not is_shared and not any(_shadows(node, outer) for node in proto.graph.node):
        return proto
    parted = onnx.ModelProto()
    parted.CopyFrom(proto)
    for body in _list_inner(parted):
        counts = Counter(node.name for node in body.node)
        for node in body.node:
            node.name = node.name if counts[node.name] == 1 else ""
    taken = find_names(parted.graph)
    for node in parted.graph.node:
        _part(node, outer, taken)
    return parted


def _list_inner(proto: onnx.ModelProto) -> list[onnx.GraphProto]:
    return [graph for graph in walk_graphs(proto.graph) if graph is not proto.graph]


def _list_own(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the tensors that ``graph`` is given, holds or makes."""
    yield from (item.name for item in graph.input)
    yield from name_weights(graph)
    yield from (name for node in graph.node for name in node.output if name)


def _shadows(node: onnx.NodeProto, outer: set[str]) -> bool:
    for graph in list_bodies(node):
        own = set(_list_own(graph))
        if not own.isdisjoint(outer) or any(_shadows(n, outer | own) for n in graph.node):
            return True
    return False


def _part(node: onnx.NodeProto, outer: set[str], taken: set[str]) -> None:
    """Rename what the bodies of ``node`` have in common with ``outer``, in place."""
    for graph in list_bodies(node):
        names = {name: _reserve(name, taken) for name in _list_own(graph) if name in outer}
        for inner in graph.node:
            rename_reads(inner, names)
            inner.output[:] = [names.get(name, name) for name in inner.output]
        for item in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
            item.name = names.get(item.name, item.name)
        for sparse in graph.sparse_initializer:
            sparse.values.name = names.get(sparse.values.name, sparse.values.name)
        around = outer.union(_list_own(graph))
        for inner in graph.node:
            _part(inner, around, taken)


def _reserve(name: str, taken: set[str]) -> str:
    number = 1
    while (chosen := f"{name}_inner{number}") in taken:
        number += 1
    taken.add(chosen)
    return chosen
