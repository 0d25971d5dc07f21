"""The graphs within If, Loop and Scan: what they make, and the memory that a turn of them takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx

from checkmate.errors import InputError
from checkmate.onnxio.model import Body, TensorType
from checkmate.onnxio.order import describe
from checkmate.onnxio.shape_rules.call import Call
from checkmate.onnxio.sizes import count_nbytes
from checkmate.placement import round_up


@dataclass(frozen=True, slots=True)
class Opened:
    """A body with the types of what it reads known."""

    body: Body
    outputs: tuple[TensorType, ...]
    values: Mapping[str, np.ndarray]


Opener = Callable[[onnx.GraphProto, tuple[TensorType, ...]], Opened]
"""Opens a graph, given the types of its inputs."""


def is_control(node: onnx.NodeProto) -> bool:
    """Return whether ``node`` runs graphs of its own."""
    return node.domain in ("", "ai.onnx") and node.op_type in _CONTROL_OPS


def infer_control(call: Call, open_body: Opener) -> tuple[tuple[TensorType, ...], tuple[Body, ...]]:
    """Return what a control-flow op makes, and its bodies.

    Raises `InputError` when that depends on data.
    """
    return _CONTROL_OPS[call.node.op_type](call, open_body)


def _find_graph(call: Call, name: str) -> onnx.GraphProto:
    for attribute in call.node.attribute:
        if attribute.name == name and attribute.HasField("g"):
            graph: onnx.GraphProto = attribute.g
            return graph
    raise InputError(f"op {describe(call.node)} has no {name}")


def _infer_if(call: Call, open_body: Opener) -> tuple[tuple[TensorType, ...], tuple[Body, ...]]:
    """Return what both branches make, or the one that the condition is known to take."""
    call.read(0)
    condition = call.values.get(call.node.input[0])
    names: tuple[str, ...] = ("then_branch", "else_branch")
    if condition is not None:
        names = (names[0 if condition.any() else 1],)
    opened = [open_body(_find_graph(call, name), ()) for name in names]
    for made in zip(*(branch.outputs for branch in opened), strict=True):
        if made[0] != made[-1]:
            raise InputError(
                f"the branches of op {describe(call.node)} make different tensors, of shape"
                f" {list(made[0].shape)} and {list(made[-1].shape)}",
                hint="the size of what follows depends on data; make both of one shape",
            )
    return opened[0].outputs, tuple(branch.body for branch in opened)


def _infer_loop(call: Call, open_body: Opener) -> tuple[tuple[TensorType, ...], tuple[Body, ...]]:
    """Return what is carried, whose type no turn changes, and what is gathered, turn by turn."""
    graph = _find_graph(call, "body")
    carried = tuple(call.read(position) for position in range(2, len(call.node.input)))
    steering = (TensorType(onnx.TensorProto.INT64, ()), TensorType(onnx.TensorProto.BOOL, ()))
    opened = open_body(graph, (*steering, *carried))
    kept, gathered = opened.outputs[1 : 1 + len(carried)], opened.outputs[1 + len(carried) :]
    _check_carried(call, graph, carried, kept)
    turns = _count_turns(call, graph, opened.values)
    if gathered and turns is None:
        raise InputError(
            f"op {describe(call.node)} gathers a result of each turn, and the number of turns"
            " depends on data"
        )
    made = tuple(TensorType(t.elem_type, (turns or 0, *t.shape)) for t in gathered)
    # The turn before keeps what it made until this one has read it; a gathered result is made
    # turn by turn and then put together.
    nbytes = _count_chunks((*steering, *carried)) + (turns or 0) * _count_chunks(gathered)
    return (*carried, *made), (_hold(opened.body, turns, nbytes),)


def _check_carried(
    call: Call,
    graph: onnx.GraphProto,
    carried: tuple[TensorType, ...],
    kept: tuple[TensorType, ...],
) -> None:
    if len(kept) < len(carried):
        raise InputError(
            f"op {describe(call.node)} carries {len(carried)} tensors,"
            f" of which its body makes {len(kept)}"
        )
    for before, after, output in zip(carried, kept, graph.output[1:], strict=False):
        if before != after:
            raise InputError(
                f"op {describe(call.node)} carries a tensor of shape {list(before.shape)}, of which"
                f" its body makes {output.name!r} of shape {list(after.shape)}",
                hint="its size depends on the number of turns; carry tensors of one shape",
            )


def _count_turns(
    call: Call, graph: onnx.GraphProto, values: Mapping[str, np.ndarray]
) -> int | None:
    """Return how often a Loop turns; None: its condition may end it earlier, or it has no count."""
    count = call.values.get(call.node.input[0]) if call.has(0) else None
    start = call.values.get(call.node.input[1]) if call.has(1) else np.array(True)
    if start is not None and not start.any():
        return 0
    goes_on = _always_goes_on(graph, values) and start is not None
    return max(0, int(count.reshape(-1)[0])) if count is not None and goes_on else None


def _always_goes_on(graph: onnx.GraphProto, values: Mapping[str, np.ndarray]) -> bool:
    """Return whether the body's condition is the one that it was given, or true."""
    name = graph.output[0].name
    makers = {made: node for node in graph.node for made in node.output}
    while name in makers and makers[name].op_type in ("Identity", "Cast"):
        name = makers[name].input[0]
    return name == graph.input[1].name or (name in values and bool(values[name].all()))


def _infer_scan(call: Call, open_body: Opener) -> tuple[tuple[TensorType, ...], tuple[Body, ...]]:
    """Return what is carried and what is gathered; each turn reads a slice of what is scanned."""
    graph = _find_graph(call, "body")
    n_scanned = call.integer("num_scan_inputs")
    n_carried = len(call.node.input) - n_scanned
    if n_scanned < 1 or n_carried < 0:
        raise InputError(f"op {describe(call.node)} scans {n_scanned} of its inputs")
    read = tuple(call.read(position) for position in range(len(call.node.input)))
    axes = call.integers("scan_input_axes") or (0,) * n_scanned
    scanned = read[n_carried:]
    n_turns = scanned[0].shape[axes[0]]
    slices = tuple(_drop_axis(known, axis) for known, axis in zip(scanned, axes, strict=True))
    opened = open_body(graph, (*read[:n_carried], *slices))
    _check_carried(call, _skip_first(graph), read[:n_carried], opened.outputs[:n_carried])
    gathered = opened.outputs[n_carried:]
    out_axes = call.integers("scan_output_axes") or (0,) * len(gathered)
    made = tuple(_add_axis(t, axis, n_turns) for t, axis in zip(gathered, out_axes, strict=True))
    # Slices along another axis than the first are cut from a transposed copy.
    copied = [
        known for known, axis in zip((*scanned, *made), (*axes, *out_axes), strict=True) if axis
    ]
    nbytes = _count_chunks((*read[:n_carried], *copied))
    return (*read[:n_carried], *made), (_hold(opened.body, n_turns, nbytes),)


def _skip_first(graph: onnx.GraphProto) -> onnx.GraphProto:
    """Return a graph whose outputs are numbered as those of a Loop's body."""
    named = onnx.GraphProto()
    named.output.add(name="")
    named.output.extend(graph.output)
    return named


def _drop_axis(known: TensorType, axis: int) -> TensorType:
    place = axis % len(known.shape)
    return TensorType(known.elem_type, (*known.shape[:place], *known.shape[place + 1 :]))


def _add_axis(known: TensorType, axis: int, n_turns: int) -> TensorType:
    place = axis % (len(known.shape) + 1)
    return TensorType(known.elem_type, (*known.shape[:place], n_turns, *known.shape[place:]))


def _count_chunks(kept: Iterable[TensorType]) -> int:
    return sum(round_up(count_nbytes("kept by a loop", known)) for known in kept)


def _hold(body: Body, n_turns: int | None, nbytes: int) -> Body:
    """Return ``body`` with what it keeps from turn to turn."""
    return replace(body, n_turns=n_turns or 1, held_nbytes=body.held_nbytes + nbytes)


_CONTROL_OPS: Mapping[
    str, Callable[[Call, Opener], tuple[tuple[TensorType, ...], tuple[Body, ...]]]
] = {"If": _infer_if, "Loop": _infer_loop, "Scan": _infer_scan}
