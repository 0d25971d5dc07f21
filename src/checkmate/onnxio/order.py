"""The order in which onnxruntime runs the nodes of a file."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import onnx

from checkmate.errors import GraphError

HOISTED_OPS = frozenset({"Shape", "Size"})
"""Ops that onnxruntime runs as soon as they can; their result is a few bytes, so that what they
read need not stay in memory for them."""


@dataclass(frozen=True, slots=True)
class Wiring:
    """What each node of a file reads and makes."""

    node: onnx.NodeProto
    reads: tuple[str, ...]
    """Each tensor once, those that its subgraphs capture included."""
    makes: tuple[str, ...]


def name_weights(graph: onnx.GraphProto) -> tuple[str, ...]:
    """Return the initializers of ``graph``, sparse ones last."""
    sparse = (tensor.values.name for tensor in graph.sparse_initializer)
    return (*(tensor.name for tensor in graph.initializer), *sparse)


def list_bodies(node: onnx.NodeProto) -> tuple[onnx.GraphProto, ...]:
    """Return the graphs within ``node``."""
    return tuple(
        graph
        for attribute in node.attribute
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs)
    )


def wire(node: onnx.NodeProto) -> Wiring:
    """Return what ``node`` reads, captures of its subgraphs included, and what it makes."""
    captures = [name for graph in list_bodies(node) for name in find_captures(graph)]
    reads = dict.fromkeys(name for name in (*node.input, *captures) if name)
    return Wiring(node, tuple(reads), tuple(name for name in node.output if name))


def find_captures(graph: onnx.GraphProto) -> tuple[str, ...]:
    """Return the tensors that ``graph`` reads from outside of itself."""
    inner = [wire(node) for node in graph.node]
    own = {*(item.name for item in graph.input), *name_weights(graph)}
    own.update(name for wiring in inner for name in wiring.makes)
    used = [name for wiring in inner for name in wiring.reads]
    used += [output.name for output in graph.output]
    return tuple(name for name in dict.fromkeys(used) if name not in own)


def sort_nodes(wirings: Sequence[Wiring]) -> tuple[Wiring, ...]:
    """Return the nodes in the order of onnxruntime's ``PRIORITY_BASED`` execution.

    File order wherever it is topological, with Shape and Size hoisted (as in onnxruntime's
    graph.cc, ``PriorityNodeCompare``). Raises `GraphError` that names a cycle.
    """
    makers = _find_makers(wirings)
    waits = [len({makers[name] for name in w.reads if name in makers}) for w in wirings]
    followers: list[list[int]] = [[] for _ in wirings]
    for position, wiring in enumerate(wirings):
        for maker in dict.fromkeys(makers[name] for name in wiring.reads if name in makers):
            followers[maker].append(position)
    ready = [(_rank(wirings[i]), i) for i, count in enumerate(waits) if count == 0]
    heapq.heapify(ready)
    done: list[int] = []
    while ready:
        _, position = heapq.heappop(ready)
        done.append(position)
        for follower in followers[position]:
            waits[follower] -= 1
            if waits[follower] == 0:
                heapq.heappush(ready, (_rank(wirings[follower]), follower))
    if len(done) < len(wirings):
        raise GraphError(f"the graph has a cycle: {_name_cycle(wirings, makers, waits)}")
    return tuple(wirings[position] for position in done)


def _rank(wiring: Wiring) -> int:
    return 0 if wiring.node.op_type in HOISTED_OPS else 1


def _find_makers(wirings: Sequence[Wiring]) -> dict[str, int]:
    makers: dict[str, int] = {}
    for position, wiring in enumerate(wirings):
        for name in wiring.makes:
            if name in makers:
                first = wirings[makers[name]].node
                raise GraphError(
                    f"tensor {name!r} has two producers, {describe(first)}"
                    f" and {describe(wiring.node)}"
                )
            makers[name] = position
    return makers


def _name_cycle(wirings: Sequence[Wiring], makers: dict[str, int], waits: Sequence[int]) -> str:
    """Return the nodes of one cycle; every node that still waits is on or behind one."""
    path: list[int] = []
    position = next(i for i, count in enumerate(waits) if count)
    while position not in path:
        path.append(position)
        before = (makers[name] for name in wirings[position].reads if name in makers)
        position = next(maker for maker in before if waits[maker])
    cycle = [*path[path.index(position) :], position]
    return " <- ".join(describe(wirings[i].node) for i in cycle)


def describe(node: onnx.NodeProto) -> str:
    """Return ``node`` for a message: its operator and its name, or its first output."""
    domain = f"{node.domain}:" if node.domain else ""
    name = node.name or next((f"making {output}" for output in node.output if output), "unnamed")
    return f"{domain}{node.op_type} {name!r}"
