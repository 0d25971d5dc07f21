"""A model file from disk, without its external weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath

import onnx
from google.protobuf.message import DecodeError

from checkmate.errors import InputError
from checkmate.onnxio.cutting import is_cut, read_cut
from checkmate.onnxio.model import TensorType
from checkmate.onnxio.order import list_bodies
from checkmate.onnxio.sanity import (
    check_structure,
    list_tensors,
    list_training_graphs,
    walk_graphs,
)
from checkmate.onnxio.sizes import count_nbytes

_MAX_DIGITS = 18
"""Of a place in a file; more are beyond any file."""


def load_proto(path: Path) -> onnx.ModelProto:
    """Return the model in ``path``; neither external nor large weights are read.

    `render_whole` puts the large ones back. Raises `InputError` when the file cannot be read, is
    not an ONNX model, or names external data outside its own folder.
    """
    try:
        if path.exists() and not path.is_file():
            raise InputError(f"cannot read {str(path)!r}: it is not a regular file")
        content, n_cut = read_cut(path)
    except OSError as error:
        raise InputError(f"cannot read {str(path)!r}: {error.strerror}") from error
    if not content:
        raise InputError(f"{str(path)!r} is empty", hint="give an ONNX model (.onnx)")
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(content)
    except DecodeError as error:
        raise InputError(
            f"{str(path)!r} is not an ONNX model, or is damaged: {len(content)} bytes do not parse",
            hint="give an ONNX model (.onnx), and check that its download or copy was complete",
        ) from error
    if not proto.opset_import or not proto.graph.output:
        raise InputError(
            f"{str(path)!r} is not a complete ONNX model:"
            f" {len(proto.opset_import)} opset imports, {len(proto.graph.output)} graph outputs",
            hint="give an ONNX model (.onnx)",
        )
    check_structure(proto)
    weights = (tensor for graph in walk_graphs(proto.graph) for tensor in graph.initializer)
    if sum(map(is_cut, weights)) > n_cut:
        raise InputError(f"{str(path)!r} has weights that are marked as left in a file")
    for tensor in find_external(proto):
        _check_location(path, tensor)
        _check_place(path, tensor)
    return proto


def has_external_data(proto: onnx.ModelProto) -> bool:
    """Return whether some weights of the model lie in other files."""
    return next(find_external(proto), None) is not None


def find_external(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield every tensor with external data, wherever the model holds one."""
    for tensor in _find_tensors(proto):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            yield tensor


def _find_tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield every tensor, those of functions and of training information included."""
    for graph in (proto.graph, *list_training_graphs(proto)):
        yield from _find_in_graph(graph)
    for node in (node for function in proto.functions for node in function.node):
        yield from list_tensors(node)
        for graph in list_bodies(node):
            yield from _find_in_graph(graph)


def _find_in_graph(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    for current in walk_graphs(graph):
        yield from current.initializer
        for sparse in current.sparse_initializer:
            yield from (sparse.values, sparse.indices)
        for node in current.node:
            yield from list_tensors(node)


def _check_location(path: Path, tensor: onnx.TensorProto) -> None:
    locations = [entry.value for entry in tensor.external_data if entry.key == "location"]
    if len(locations) > 1:
        raise InputError(
            f"tensor {tensor.name!r} of {str(path)!r} has external data at {len(locations)} places,"
            f" {locations[0]!r} and {locations[1]!r}"
        )
    location = "".join(locations)
    posix, windows = PurePosixPath(location), PureWindowsPath(location)
    leaves = ".." in (*posix.parts, *windows.parts) or posix.is_absolute() or windows.drive
    folder = path.resolve().parent
    if not location or leaves or not _stays_inside(folder, location):
        raise InputError(
            f"tensor {tensor.name!r} of {str(path)!r} has external data at {location!r},"
            " outside the model's folder",
            hint="keep a model and its data in one folder",
        )


def _check_place(path: Path, tensor: onnx.TensorProto) -> None:
    """Refuse what onnxruntime refuses: a place that is no number, or another length."""
    given = {e.key: e.value for e in tensor.external_data if e.key in ("offset", "length")}
    for key, value in given.items():
        if not (value.isascii() and value.isdecimal() and len(value) <= _MAX_DIGITS):
            raise InputError(
                f"tensor {tensor.name!r} of {str(path)!r} has external data with {key}"
                f" {value[:_MAX_DIGITS]!r}, which is no number of bytes",
                hint="save the model and its data again",
            )
    nbytes = count_nbytes(tensor.name, TensorType(tensor.data_type, tuple(tensor.dims)))
    if int(given.get("length", nbytes)) != nbytes:
        raise InputError(
            f"tensor {tensor.name!r} of {str(path)!r} has external data of length"
            f" {given['length']}, but takes {nbytes} B",
            hint="save the model and its data again",
        )


def _stays_inside(folder: Path, location: str) -> bool:
    """Return whether ``location``, links followed, lies in ``folder``."""
    try:
        return (folder / location).resolve().is_relative_to(folder)
    except (OSError, RuntimeError):  # a name that is too long; a loop of links
        return False
