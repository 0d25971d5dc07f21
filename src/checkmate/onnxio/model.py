"""A model as read: the file, what is known of its tensors, and its graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from checkmate.graph import Graph
from checkmate.onnxio.order import Wiring

_HALVES = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type and shape of a tensor; every dimension is known."""

    elem_type: int
    """An ``onnx.TensorProto.DataType``."""
    shape: tuple[int, ...]

    @property
    def is_half(self) -> bool:
        """Whether the elements are floats of 16 bits, for which the CPU has few kernels."""
        return self.elem_type in _HALVES


def find_weight_types(graph: onnx.GraphProto) -> dict[str, TensorType]:
    """Return the types of the initializers; onnxruntime makes sparse ones dense."""
    types = {t.name: TensorType(t.data_type, tuple(t.dims)) for t in graph.initializer}
    for sparse in graph.sparse_initializer:
        types[sparse.values.name] = TensorType(sparse.values.data_type, tuple(sparse.dims))
    return types


@dataclass(frozen=True, slots=True)
class Body:
    """A graph within a control-flow op, as each of its turns runs it."""

    wirings: tuple[Wiring, ...]
    """In the order in which they run."""
    outputs: tuple[str, ...]
    types: Mapping[str, TensorType]
    """Of what it makes, is given and captures."""
    bodies: Mapping[str, tuple[Body, ...]]
    """Of its own control-flow ops, as in `Model`."""
    n_turns: int = 1
    held_nbytes: int = 0
    """What is kept from turn to turn."""


@dataclass(frozen=True, slots=True)
class Model:
    """An ONNX model and the graph that it stands for.

    The weights of external data are never loaded.
    """

    path: Path
    """The file it was read from; external data lies beside it."""
    proto: onnx.ModelProto
    """The file's content, unchanged but for functions, or what onnxruntime made of it."""
    nodes: tuple[onnx.NodeProto, ...]
    """Per op of ``graph``, in the same order: its node, with the names of the file."""
    types: Mapping[str, TensorType]
    """Per tensor of the file (inputs, initializers and constants included), under bound dims."""
    values: Mapping[str, np.ndarray]
    """Tensors whose value is known and small: shapes, axes, scalar constants."""
    bodies: Mapping[str, tuple[Body, ...]]
    """Per control-flow op, by the first tensor that it makes: the graphs within it."""
    complaints: tuple[str, ...]
    """What onnx has against ops, the names of which are said first."""
    dims: Mapping[str, int]
    """The symbolic dimensions that were bound."""
    graph: Graph
    """What it makes, reads and holds; resident tensors without a type are copies of initializers
    that each run makes to hand them to the caller."""
    namesake: str | None = None
    """A name that nodes of the file share, for which onnxruntime refuses it; None: none."""
    is_optimized: bool = False
    """``proto`` was optimized; the file at ``path`` is what it was made from."""
