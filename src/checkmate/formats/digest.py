"""A digest of a graph that came without a model."""

from __future__ import annotations

import hashlib
import json

from checkmate.graph import Graph


def digest_graph(graph: Graph) -> str:
    """Return the SHA-256 of the graph's structure: names, sizes, edges, what may be repeated."""
    names = [tensor.name for tensor in graph.tensors]
    structure = {
        "ops": [
            {
                "name": op.name,
                "inputs": [names[i] for i in op.inputs],
                "outputs": [names[i] for i in op.outputs],
                "recomputable": op.recomputable,
            }
            for op in graph.ops
        ],
        "tensors": [
            (tensor.name, tensor.nbytes, None if tensor.source is None else names[tensor.source])
            for tensor in graph.tensors
        ],
        "outputs": [names[output] for output in graph.outputs],
    }
    text = json.dumps(structure, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
