"""What changes to ONNX models are made with, after which they are still valid.

An edit takes a model and what draws a value from a strategy of hypothesis, and changes the model
in place. Where there is nothing to change, nothing is. Dimensions and types follow, as far as a
change moves them; a change may still meet an operator that does not take what comes to it, so that
ten models of a hundred end up refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper

from checkmate.onnxio.order import wire
from checkmate.onnxio.renaming import rename_reads

T = TypeVar("T")
Draw = Callable[[st.SearchStrategy[T]], T]
Edit = Callable[[onnx.ModelProto, Draw], None]

FLOATS = (1, 10, 11)
"""float, float16, double."""


def choose(draw: Draw, items: Sequence[T]) -> T:
    return draw(st.sampled_from(items))


def find_types(proto: onnx.ModelProto) -> dict[str, tuple[int, tuple[int | str, ...]]]:
    """Return element type and shape of the tensors whose rank onnx knows."""
    try:
        graph = onnx.shape_inference.infer_shapes(proto, data_prop=True).graph
    except Exception:  # of an edit before, onnx may know nothing
        graph = proto.graph
    found = {t.name: (t.data_type, tuple(t.dims)) for t in graph.initializer}
    for item in (*graph.value_info, *graph.input, *graph.output):
        tensor = item.type.tensor_type
        if tensor.HasField("shape"):
            dims = tensor.shape.dim
            shape = (d.dim_value if d.HasField("dim_value") else d.dim_param for d in dims)
            found[item.name] = (tensor.elem_type, tuple(shape))
    return found


def list_made(graph: onnx.GraphProto) -> list[str]:
    return [name for node in graph.node for name in node.output if name]


def list_names(graph: onnx.GraphProto) -> set[str]:
    """Return every name of a tensor or a node, those within bodies included."""
    names = {item.name for item in (*graph.input, *graph.output, *graph.initializer)}
    names.update(tensor.values.name for tensor in graph.sparse_initializer)
    for node in graph.node:
        names.update((node.name, *node.input, *node.output))
        for attribute in node.attribute:
            names |= list_names(attribute.g) if attribute.HasField("g") else set()
    return names


def name_new(proto: onnx.ModelProto, stem: str) -> str:
    taken = list_names(proto.graph)
    return next(name for i in range(10_000) if (name := f"{stem}{i or ''}") not in taken)


def find_opset(proto: onnx.ModelProto) -> int:
    return max((e.version for e in proto.opset_import if e.domain in ("", "ai.onnx")), default=0)


def find_floats(proto: onnx.ModelProto) -> list[str]:
    """Return what nodes make or the caller gives, where it is floats."""
    types = find_types(proto)
    given = [item.name for item in proto.graph.input]
    return [n for n in (*given, *list_made(proto.graph)) if n in types and types[n][0] in FLOATS]


def insert_after(proto: onnx.ModelProto, name: str, nodes: Sequence[onnx.NodeProto]) -> None:
    """Put ``nodes`` right behind what makes ``name``."""
    graph = proto.graph
    place = next((i + 1 for i, node in enumerate(graph.node) if name in node.output), 0)
    for node in reversed(nodes):
        graph.node.insert(place, node)


def redirect(
    proto: onnx.ModelProto, old: str, new: str, skipped: Sequence[str], draw: Draw
) -> None:
    """Let some readers of ``old`` read ``new``; nodes that make what is ``skipped`` do not."""
    for node in proto.graph.node:
        is_skipped = not set(skipped).isdisjoint(node.output)
        if not is_skipped and old in wire(node).reads and draw(st.booleans()):
            rename_reads(node, {old: new})


def draw_value(draw: Draw, elem_type: int, shape: Sequence[int]) -> np.ndarray:
    """Return an array that follows from one drawn number."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    dtype = helper.tensor_dtype_to_np_dtype(elem_type)
    if elem_type in FLOATS:
        return np.asarray(rng.standard_normal(shape), dtype=dtype)
    return np.asarray(rng.integers(0, 2, shape), dtype=dtype)
