"""Losses, accumulators, optimizers and reductions of onnxruntime's training build.

What they make follows orttraining/core/graph/training_op_defs.cc of onnxruntime 1.31.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import onnx

from checkmate.onnxio.model import TensorType
from checkmate.onnxio.shape_rules.call import Call, Made, Rule, flag, infer_as, like

_N_LAMB_SHARED = 5
"""Inputs before the groups: signal, loss scale, gradient norm, rate, step."""
_N_LAMB_GROUP = 5
"""Per parameter: weights, gradients, two moments, weights in mixed precision; out as in."""


def _lose(call: Call) -> Made:
    """Return a loss, and the logarithms of probabilities."""
    scores, labels = call.read(0), call.read(1)
    is_whole = call.text("reduction", "mean") == "none"
    return TensorType(scores.elem_type, labels.shape if is_whole else ()), scores


def _accumulate(call: Call) -> Made:
    return TensorType(onnx.TensorProto.BOOL, (1,)), call.read(0)


def _update_lamb(call: Call) -> Made:
    step = call.read(_N_LAMB_SHARED - 1) if call.has(_N_LAMB_SHARED - 1) else None
    groups = range(_N_LAMB_SHARED, len(call.node.input))
    return step, *(call.read(position) if call.has(position) else None for position in groups)


def _scale_mixed(call: Call) -> Made:
    elem_type = call.integer("to", onnx.TensorProto.FLOAT)
    tensors = [call.read(position) for position in range(1, len(call.node.input))]
    if call.integer("fuse_outputs"):
        return (TensorType(elem_type, (sum(math.prod(t.shape) for t in tensors),)),)
    return tuple(TensorType(elem_type, tensor.shape) for tensor in tensors)


def _concatenate(call: Call) -> Made:
    lengths = TensorType(onnx.TensorProto.INT64, (len(call.node.input),))
    return *infer_as("Concat")(call), lengths


def _split(call: Call) -> Made:
    """Return the pieces, whose lengths are the second input."""
    data, lengths = call.read(0), call.evaluate(1)
    axis = call.integer("axis") % max(1, len(data.shape))
    before, after = data.shape[:axis], data.shape[axis + 1 :]
    return tuple(TensorType(data.elem_type, (*before, n, *after)) for n in lengths)


def _pass(call: Call) -> Made:
    return tuple(call.read(position) for position in range(len(call.node.input)))


def _view(call: Call) -> Made:
    """Return one output per shape that is read."""
    positions = range(1, len(call.node.input))
    return tuple(TensorType(call.read(0).elem_type, call.evaluate(p)) for p in positions)


def _is_finite(call: Call) -> Made:
    return (TensorType(onnx.TensorProto.BOOL, call.read(0).shape),)


def _reduce_all(call: Call) -> Made:
    elem_type = call.read(0).elem_type
    is_double = elem_type == onnx.TensorProto.DOUBLE
    return (TensorType(elem_type if is_double else onnx.TensorProto.FLOAT, ()),)


def find_broadcast_axes(
    one: Sequence[int], other: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the axes along which each of two shapes is broadcast to the other, last first.

    As in broadcast_gradient_args.cc of onnxruntime. Raises `ValueError` when they do not fit.
    """
    rank = max(len(one), len(other))
    padded = [(0,) * (rank - len(shape)) + tuple(shape) for shape in (one, other)]
    axes: tuple[list[int], list[int]] = ([], [])
    for axis in reversed(range(rank)):
        sizes = padded[0][axis], padded[1][axis]
        if axis < rank - min(len(one), len(other)):
            axes[len(one) == rank].append(axis)
        elif sizes[0] != sizes[1]:
            if 1 not in sizes:
                raise ValueError(f"shapes {list(one)} and {list(other)} do not broadcast")
            axes[sizes[0] != 1].append(axis)
    return tuple(axes[0]), tuple(axes[1])


def _list_broadcast_axes(call: Call) -> Made:
    found = find_broadcast_axes(call.evaluate(0), call.evaluate(1))
    return tuple(TensorType(onnx.TensorProto.INT64, (len(axes),)) for axes in found)


RULES: Mapping[str, Rule] = {
    "AdamOptimizer": like(1, 4, 5, 2, 3, 6),
    "BroadcastGradientArgs": _list_broadcast_axes,
    "ConcatTraining": _concatenate,
    "Group": flag(),
    "InPlaceAccumulator": like(0),
    "InPlaceAccumulatorV2": _accumulate,
    "IsAllFinite": flag(),
    "IsFinite": _is_finite,
    "LambOptimizer": _update_lamb,
    "MixedPrecisionScale": _scale_mixed,
    "PassThrough": _pass,
    "ReduceAllL2": _reduce_all,
    "ReduceSumTraining": infer_as("ReduceSum"),
    "SGDOptimizer": like(1, 2),
    "Scale": like(0),
    "SoftmaxCrossEntropyLossInternal": _lose,
    "SplitTraining": _split,
    "View": _view,
    "ZeroGradient": like(0),
}
"""Of the com.microsoft domain."""
