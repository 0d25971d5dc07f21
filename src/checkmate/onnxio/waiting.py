"""What can read a tensor of any type in no time, to wait for it or to let go of it."""

from __future__ import annotations

import onnx

from checkmate.onnxio.model import Model, TensorType

_FIRST_OPSETS_OF_SHAPES: dict[int, int] = {
    onnx.TensorProto.FLOAT16: 1,
    onnx.TensorProto.BFLOAT16: 13,
    onnx.TensorProto.FLOAT8E4M3FN: 21,
    onnx.TensorProto.FLOAT8E4M3FNUZ: 21,
    onnx.TensorProto.FLOAT8E5M2: 21,
    onnx.TensorProto.FLOAT8E5M2FNUZ: 21,
}
"""Per type that has a Shape rather than a Size: since when."""
_COMPLEX = frozenset({onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128})
_NEWEST_SIZED = onnx.TensorProto.BFLOAT16 - 1
"""Types of which Size has a CPU kernel are numbered up to this one, complex ones apart."""


def has_size(elem_type: int) -> bool:
    """Return whether onnxruntime's CPU provider takes a Size of such tensors.

    Of float16 it takes one behind a cast. Measured with onnxruntime 1.31.1. Its CUDA provider has
    a Size of every type.
    """
    return elem_type <= _NEWEST_SIZED and elem_type not in _COMPLEX


def choose_reader(known: TensorType, opset: int) -> str | None:
    """Return an operator that reads such a tensor without a copy; None: there is none.

    Size, whose result is 8 bytes, else Shape, which is folded where optimizers know it.
    """
    if has_size(known.elem_type) and not known.is_half:
        return "Size"
    first_opset = _FIRST_OPSETS_OF_SHAPES.get(known.elem_type)
    return None if first_opset is None or opset < first_opset else "Shape"


def find_sizeless(model: Model) -> str | None:
    """Return the first tensor, given or made, of which fences tell no size on the CPU.

    None: they do of all. Those of half precision they cast first.
    """
    given = (item.name for item in model.proto.graph.input)
    made = (name for node in model.nodes for name in node.output if name)
    for name in (*given, *made):
        known = model.types[name]
        if not known.is_half and not has_size(known.elem_type):
            return str(name)
    return None
