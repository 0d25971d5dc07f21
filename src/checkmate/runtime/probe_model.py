"""The smallest model, to learn what a session really gets."""

from __future__ import annotations


def _field(number: int, content: bytes) -> bytes:
    """Return one length-delimited protobuf field of at most 127 bytes."""
    return bytes((number << 3 | 2, len(content))) + content


def _varint(number: int, value: int) -> bytes:
    return bytes((number << 3, value))


def _value_info(name: bytes) -> bytes:
    """Return a float tensor of one element."""
    shape = _field(2, _field(1, _varint(1, 1)))
    return _field(1, name) + _field(2, _field(1, _varint(1, 1) + shape))


_NODE = _field(1, b"x") + _field(2, b"y") + _field(3, b"probe") + _field(4, b"Relu")
_GRAPH = _field(1, _NODE) + _field(2, b"g") + _field(11, _value_info(b"x"))

PROBE_MODEL = (
    _varint(1, 8)
    + _field(7, _GRAPH + _field(12, _value_info(b"y")))
    + _field(8, _field(1, b"") + _varint(2, 13))
)
"""``y = Relu(x)`` in ONNX's protobuf, by hand, as onnx is not imported in this room."""
