"""Which ops are the backward pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from checkmate.errors import InputError
from checkmate.onnxio.model import TensorType
from checkmate.onnxio.order import Wiring

FLOATS = frozenset(
    {onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16}
    | {onnx.TensorProto.BFLOAT16, onnx.TensorProto.DOUBLE}
)


def find_loss(
    outputs: Sequence[str], types: Mapping[str, TensorType], asked: str | None
) -> str | None:
    """Return the loss: the output ``asked`` for, else the first scalar float output; None: none.

    Raises `InputError` when ``asked`` is not an output.
    """
    if asked is not None:
        if asked not in outputs:
            raise InputError(
                f"loss {asked!r} is not a graph output", hint=f"outputs: {', '.join(outputs[:8])}"
            )
        return asked
    scalars = (name for name in outputs if types[name].shape in ((), (1,)))
    return next((name for name in scalars if types[name].elem_type in FLOATS), None)


def find_backward(wirings: Sequence[Wiring], loss: str | None) -> tuple[bool, ...]:
    """Return, per node in topological order, whether it depends on the gradient of the loss.

    Forward ops are the ancestors of the loss. The gradient starts from the deepest of their
    tensors that another op reads (the log-probabilities, say); whatever depends on that tensor
    without being forward is backward. An op that reads only other forward tensors, like the
    Transpose of an activation that a weight gradient starts with, is neither.
    """
    makers = {name: i for i, wiring in enumerate(wirings) for name in wiring.makes}
    forward = _find_ancestors(wirings, makers, loss)
    depth = _find_depths(wirings, makers)
    crossing = [
        (depth[makers[name]], name)
        for i, wiring in enumerate(wirings)
        if i not in forward
        for name in wiring.reads
        if makers.get(name) in forward
    ]
    deepest = max(crossing, default=(0, ""))[0]
    tainted = {name for level, name in crossing if level == deepest}
    backward: list[bool] = []
    for i, wiring in enumerate(wirings):
        depends = i not in forward and any(name in tainted for name in wiring.reads)
        tainted.update(wiring.makes if depends else ())
        backward.append(depends)
    return tuple(backward)


def _find_ancestors(
    wirings: Sequence[Wiring], makers: Mapping[str, int], loss: str | None
) -> frozenset[int]:
    found: set[int] = set()
    pending = [] if loss is None or loss not in makers else [makers[loss]]
    while pending:
        position = pending.pop()
        if position not in found:
            found.add(position)
            pending.extend(makers[name] for name in wirings[position].reads if name in makers)
    return frozenset(found)


def _find_depths(wirings: Sequence[Wiring], makers: Mapping[str, int]) -> list[int]:
    """Return, per node, the length of the longest path to it."""
    depths: list[int] = []
    for wiring in wirings:
        before = (depths[makers[name]] for name in wiring.reads if name in makers)
        depths.append(1 + max(before, default=0))
    return depths
