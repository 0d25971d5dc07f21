"""Large weights inside of a model file: left there when it is read, copied when one is written.

A model is planned without its weights. What is cut out of an initializer are the bytes of its
``raw_data``; two entries say where in the file they are. The encoding is that of protocol buffers:
a message is a row of fields, each with a number, and a length where its value is a message, a text
or bytes.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import onnx

from checkmate.errors import InputError

CUT_NBYTES = 2**16
"""Initializers of more bytes are cut."""
_OFFSET, _LENGTH = "checkmate.offset", "checkmate.length"
_STAMP = "checkmate.stamp"
"""What the file was when it was read."""
_KEYS = (_OFFSET, _LENGTH, _STAMP)
_GRAPH, _INITIALIZER, _RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 7, 5, 9, 13, 14
"""Numbers of fields: in a model, a graph, and a tensor."""
_DELIMITED = 2
"""The type of fields that have a length. It stands in three bits, the number above them."""
_FIXED_NBYTES = {1: 8, 5: 4}
_CHUNK_NBYTES = 2**20

Buffer = bytes | mmap.mmap
Piece = bytes | range
"""What a file consists of: bytes, or where in another file they are."""


class _OddError(ValueError):
    """The bytes are no row of fields; the parser of protocol buffers says it better."""


@dataclass(frozen=True, slots=True)
class _Field:
    """Where a field is."""

    number: int
    type: int
    start: int
    """With the number before it."""
    value: int
    end: int


def read_cut(path: Path) -> tuple[bytes, int]:
    """Return the content of the model in ``path`` without large weights, and how many were cut."""
    with path.open("rb") as file:
        if path.stat().st_size <= CUT_NBYTES:
            return file.read(), 0
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            try:
                pieces, n_cut = _cut_model(content, _stamp(file))
            except _OddError:
                return content[:], 0
            return b"".join(pieces), n_cut


def is_cut(tensor: onnx.TensorProto) -> bool:
    """Return whether the data of ``tensor`` was left in its file."""
    return any(entry.key == _OFFSET for entry in tensor.external_data)


def render_whole(proto: onnx.ModelProto, source: Path) -> bytes:
    """Return ``proto`` as a file, with the weights that were cut when ``source`` was read.

    Raises `InputError` when they are no longer there, or the file is another one by now.
    """
    lean: bytes = proto.SerializeToString(deterministic=True)
    if not any(map(is_cut, proto.graph.initializer)):
        return lean
    whole = BytesIO()
    try:
        with source.open("rb") as file:
            stamps = {_find_entry(t, _STAMP) for t in proto.graph.initializer if is_cut(t)}
            if stamps != {_stamp(file)}:
                raise InputError(
                    f"{str(source)!r} has changed since it was read, and its weights are needed",
                    hint="solve again, and leave the model as it is meanwhile",
                )
            for piece in _fill_model(lean):
                _copy(file, piece, whole)
    except OSError as error:
        raise InputError(f"cannot read {str(source)!r} again: {error.strerror}") from error
    return whole.getvalue()


def measure_cut(proto: onnx.ModelProto) -> int:
    """Return the bytes of the weights that were cut."""
    return sum(len(_find_place(t)) for t in proto.graph.initializer if is_cut(t))


def _copy(file: BinaryIO, piece: Piece, target: BytesIO) -> None:
    if isinstance(piece, bytes):
        target.write(piece)
        return
    file.seek(piece.start)
    left = len(piece)
    while left:
        chunk = file.read(min(left, _CHUNK_NBYTES))
        if not chunk:
            raise InputError(f"{file.name!r} is shorter than when it was read")
        target.write(chunk)
        left -= len(chunk)


def _stamp(file: BinaryIO) -> str:
    status = os.fstat(file.fileno())
    return f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}"


def _cut_model(content: mmap.mmap, stamp: str) -> tuple[list[bytes], int]:
    pieces: list[bytes] = []
    n_cut = 0
    for field in _list_fields(content, 0, len(content)):
        if _is_message(field, _GRAPH):
            graph: list[bytes] = []
            for inner in _list_fields(content, field.value, field.end):
                is_weight = _is_message(inner, _INITIALIZER)
                tensor = _cut_tensor(content, inner, stamp) if is_weight else None
                n_cut += tensor is not None
                graph.append(content[inner.start : inner.end] if tensor is None else tensor)
            pieces.append(_wrap(_GRAPH, b"".join(graph)))
        else:
            pieces.append(content[field.start : field.end])
    return pieces, n_cut


def _is_message(field: _Field, number: int) -> bool:
    return field.number == number and field.type == _DELIMITED


def _cut_tensor(content: mmap.mmap, tensor: _Field, stamp: str) -> bytes | None:
    """Return the initializer without its data; None: it stays whole."""
    if tensor.end - tensor.value <= CUT_NBYTES:
        return None
    fields = list(_list_fields(content, tensor.value, tensor.end))
    data = [field for field in fields if _is_message(field, _RAW_DATA)]
    is_plain = all(field.number != _DATA_LOCATION for field in fields)
    if len(data) != 1 or not is_plain or data[0].end - data[0].value <= CUT_NBYTES:
        return None
    kept = [content[field.start : field.end] for field in fields if field is not data[0]]
    place = (str(data[0].value), str(data[0].end - data[0].value), stamp)
    for key, value in zip(_KEYS, place, strict=True):
        entry = onnx.StringStringEntryProto(key=key, value=value)
        kept.append(_wrap(_EXTERNAL_DATA, entry.SerializeToString()))
    return _wrap(_INITIALIZER, b"".join(kept))


def _fill_model(lean: bytes) -> Iterator[Piece]:
    """Yield what the file ``lean`` consists of when its weights are back."""
    for field in _list_fields(lean, 0, len(lean)):
        if not _is_message(field, _GRAPH):
            yield lean[field.start : field.end]
            continue
        graph = [
            piece
            for inner in _list_fields(lean, field.value, field.end)
            for piece in _fill_tensor(lean, inner)
        ]
        yield _head(_GRAPH, sum(map(len, graph)))
        yield from graph


def _fill_tensor(lean: bytes, field: _Field) -> list[Piece]:
    """Return the pieces of a field of the graph."""
    whole = lean[field.start : field.end]
    if not _is_message(field, _INITIALIZER):
        return [whole]
    tensor = onnx.TensorProto.FromString(lean[field.value : field.end])
    if not is_cut(tensor):
        return [whole]
    place = _find_place(tensor)
    kept = [entry for entry in tensor.external_data if entry.key not in _KEYS]
    del tensor.external_data[:]
    tensor.external_data.extend(kept)
    rest = tensor.SerializeToString(deterministic=True) + _head(_RAW_DATA, len(place))
    return [_head(_INITIALIZER, len(rest) + len(place)) + rest, place]


def _find_place(tensor: onnx.TensorProto) -> range:
    """Return where in its file the data of ``tensor`` is."""
    start = int(_find_entry(tensor, _OFFSET))
    return range(start, start + int(_find_entry(tensor, _LENGTH)))


def _find_entry(tensor: onnx.TensorProto, key: str) -> str:
    # What is put there by this module is last.
    return [str(entry.value) for entry in tensor.external_data if entry.key == key][-1]


def _list_fields(content: Buffer, start: int, end: int) -> Iterator[_Field]:
    """Yield the fields between two positions."""
    while start < end:
        tag, value = _read_number(content, start, end)
        kind, length = tag & 7, 0
        if kind == 0:
            _, stop = _read_number(content, value, end)
        elif kind == _DELIMITED:
            length, value = _read_number(content, value, end)
            stop = value + length
        elif kind in _FIXED_NBYTES:
            stop = value + _FIXED_NBYTES[kind]
        else:
            raise _OddError
        if stop > end:
            raise _OddError
        yield _Field(tag >> 3, kind, start, value, stop)
        start = stop


def _read_number(content: Buffer, start: int, end: int) -> tuple[int, int]:
    """Return the number at ``start``, and where it ends: seven bits a byte, the lowest first."""
    number = 0
    for position in range(start, min(end, start + 10)):
        byte = content[position]
        number |= (byte & 127) << 7 * (position - start)
        if byte < 128:
            return number, position + 1
    raise _OddError


def _head(number: int, length: int) -> bytes:
    """Return what stands before a field of ``length`` bytes."""
    made = bytearray()
    for given in (number << 3 | _DELIMITED, length):
        left = given
        while left > 127:
            made.append(left & 127 | 128)
            left >>= 7
        made.append(left)
    return bytes(made)


def _wrap(number: int, value: bytes) -> bytes:
    return _head(number, len(value)) + value
