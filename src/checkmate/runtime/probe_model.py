"""The smallest model that a device runs with each of its libraries."""

from __future__ import annotations

from collections.abc import Sequence


def _field(number: int, content: bytes) -> bytes:
    """Return one length-delimited protobuf field of at most 16,383 bytes."""
    size = len(content)
    length = bytes((size,)) if size < 128 else bytes((size & 127 | 128, size >> 7))
    return bytes((number << 3 | 2,)) + length + content


def _varint(number: int, value: int) -> bytes:
    return bytes((number << 3, value))


def _value_info(name: bytes) -> bytes:
    """Return a float tensor of one element in four dimensions."""
    shape = _field(2, 4 * _field(1, _varint(1, 1)))
    return _field(1, name) + _field(2, _field(1, _varint(1, 1) + shape))


def _node(op_type: bytes, reads: Sequence[bytes], makes: bytes) -> bytes:
    names = b"".join(_field(1, name) for name in reads) + _field(2, makes)
    return _field(1, names + _field(3, b"probe " + op_type) + _field(4, op_type))


_NODES = (
    _node(b"Relu", (b"x",), b"r")
    + _node(b"Conv", (b"r", b"r"), b"c")
    + _node(b"MatMul", (b"c", b"c"), b"y")
)
_GRAPH = _NODES + _field(2, b"g") + _field(11, _value_info(b"x")) + _field(12, _value_info(b"y"))

PROBE_MODEL = _varint(1, 8) + _field(7, _GRAPH) + _field(8, _field(1, b"") + _varint(2, 13))
"""One element through Relu, Conv with itself and MatMul with itself, in ONNX's protobuf, by hand,
as onnx is not imported in this room.

On CUDA the first is a kernel of onnxruntime's own, the second takes cuDNN and the third cuBLAS.
"""
PROBE_SHAPE = (1, 1, 1, 1)
