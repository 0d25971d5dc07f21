"""What can read a tensor of any type in no time, to wait for it or to let go of it."""

from __future__ import annotations

import onnx

from checkmate.onnxio.model import Model
from checkmate.onnxio.values import Opsets

_HALF = onnx.TensorProto.BFLOAT16
_EIGHTHS = frozenset(
    {onnx.TensorProto.FLOAT8E4M3FN, onnx.TensorProto.FLOAT8E4M3FNUZ}
    | {onnx.TensorProto.FLOAT8E5M2, onnx.TensorProto.FLOAT8E5M2FNUZ}
)
_COMPLEX = frozenset({onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128})
_NEWEST_SIZED = onnx.TensorProto.BFLOAT16 - 1
"""Types of which Size has a CPU kernel are numbered up to this one, complex ones apart."""
_FIRST_OPSET_OF_HALF_SHAPES = 13
_FIRST_OPSET_OF_EIGHTH_SHAPES = 21


def has_size(elem_type: int) -> bool:
    """Return whether onnxruntime's CPU provider has a Size of such tensors.

    Measured with onnxruntime 1.31.1. Its CUDA provider takes every type.
    """
    return elem_type <= _NEWEST_SIZED and elem_type not in _COMPLEX


def choose_reader(model: Model, name: str) -> str | None:
    """Return an operator that reads the tensor ``name`` without a copy; None: there is none.

    Size, whose result is 8 bytes, else Shape.
    """
    elem_type = model.types[name].elem_type
    if has_size(elem_type):
        return "Size"
    opset = Opsets(tuple(model.proto.opset_import)).find("")
    is_shaped = (elem_type == _HALF and opset >= _FIRST_OPSET_OF_HALF_SHAPES) or (
        elem_type in _EIGHTHS and opset >= _FIRST_OPSET_OF_EIGHTH_SHAPES
    )
    return "Shape" if is_shaped else None


def find_sizeless(model: Model) -> str | None:
    """Return the first tensor, given or made, that has no Size on the CPU; None: all have one."""
    given = (item.name for item in model.proto.graph.input)
    made = (name for node in model.nodes for name in node.output if name)
    names = (*given, *made)
    return next((name for name in names if not has_size(model.types[name].elem_type)), None)
