"""A model as read: the file, what is known of its tensors, and its graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from checkmate.graph import Graph


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type and shape of a tensor; every dimension is known."""

    elem_type: int
    """An ``onnx.TensorProto.DataType``."""
    shape: tuple[int, ...]


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
    dims: Mapping[str, int]
    """The symbolic dimensions that were bound."""
    graph: Graph
    is_optimized: bool = False
    """``proto`` was optimized; the file at ``path`` is what it was made from."""
