"""Values for inputs that must fit an op: shapes, axes and counts that follow from its types."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx

from checkmate.profiler.surroundings import Surroundings

_Shapes = tuple[tuple[int, ...], tuple[int, ...]]
"""Of the first input and the first output."""


def derive_values(node: onnx.NodeProto, around: Surroundings) -> dict[str, np.ndarray]:
    """Return values, by name, for inputs of ``node`` that are unknown but cannot be any number.

    They are such that the outputs get the shapes that the model gives them.
    """
    steered = _steer(node, around) if node.domain in ("", "ai.onnx") else {}
    unknown = [
        position
        for position in steered
        if position < len(node.input)
        and node.input[position]
        and node.input[position] not in around.values
    ]
    if not unknown:
        return {}
    # All of them together: an end that was derived does not fit a start that was not.
    return {
        node.input[position]: value.astype(_find_dtype(node.input[position], around))
        for position, value in steered.items()
        if position < len(node.input) and node.input[position]
    }


def _steer(node: onnx.NodeProto, around: Surroundings) -> dict[int, np.ndarray]:
    """Return values that fit ``node``, by the position of the input."""
    if node.op_type == "Split":
        axis = _read_int(node, "axis", 0)
        return {1: _ints(*[around.types[name].shape[axis] for name in node.output])}
    if node.op_type == "OneHot":
        return {1: np.array(_one_hot_depth(node, around))}
    derive = _DERIVATIONS.get(node.op_type)
    return {} if derive is None else derive(_find_shapes(node, around))


def find_upper(node: onnx.NodeProto, position: int, around: Surroundings) -> int | None:
    """Return the bound, exclusive, of the integers that an input may hold; None: any."""
    find = _BOUNDS.get((node.op_type, position))
    return None if find is None else find(node, around)


def is_positive(node: onnx.NodeProto, position: int) -> bool:
    """Return whether an input must be above zero to keep clear of NaN, infinity and denormals."""
    return position in _POSITIVE.get(node.op_type, ())


_POSITIVE: Mapping[str, tuple[int, ...]] = {
    "Acosh": (0,),
    "BatchNormalization": (4,),
    "Div": (1,),
    "Log": (0,),
    "Mod": (1,),
    "Pow": (0,),
    "Reciprocal": (0,),
    "ReduceLogSum": (0,),
    "ReduceProd": (0,),
    "Sqrt": (0,),
}


def _find_shapes(node: onnx.NodeProto, around: Surroundings) -> _Shapes:
    known = [around.types.get(names[0]) for names in (node.input, node.output) if names]
    shapes = [() if t is None else t.shape for t in known]
    return shapes[0], shapes[-1]


def _find_dtype(name: str, around: Surroundings) -> np.dtype:
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(around.types[name].elem_type))


def _ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


def _slice(shapes: _Shapes) -> dict[int, np.ndarray]:
    axes = range(len(shapes[1]))
    starts, steps = _ints(*[0 for _ in axes]), _ints(*[1 for _ in axes])
    return {1: starts, 2: _ints(*shapes[1]), 3: _ints(*axes), 4: steps}


def _pad(shapes: _Shapes) -> dict[int, np.ndarray]:
    after = [out - in_ for in_, out in zip(*shapes, strict=True)]
    return {1: _ints(*[0] * len(after), *after)}


def _tile(shapes: _Shapes) -> dict[int, np.ndarray]:
    return {1: _ints(*[out // max(1, in_) for in_, out in zip(*shapes, strict=True)])}


def _range(shapes: _Shapes) -> dict[int, np.ndarray]:
    numbers = (0, shapes[1][0], 1)
    return {position: np.array(number) for position, number in enumerate(numbers)}


def _resize(shapes: _Shapes) -> dict[int, np.ndarray]:
    scales = [out / max(1, in_) for in_, out in zip(*shapes, strict=True)]
    return {2: np.array(scales), 3: _ints(*shapes[1])}


def _window(shapes: _Shapes) -> dict[int, np.ndarray]:
    return {0: np.array(shapes[1][0])}


def _reduce(shapes: _Shapes) -> dict[int, np.ndarray]:
    if len(shapes[0]) != len(shapes[1]):
        # Without kept dimensions, the trailing ones are as good as any.
        return {1: _ints(*range(len(shapes[1]), len(shapes[0])))}
    pairs = enumerate(zip(*shapes, strict=True))
    return {1: _ints(*[axis for axis, (in_, out) in pairs if in_ != out])}


_REDUCTIONS = ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare")

_DERIVATIONS: Mapping[str, Callable[[_Shapes], dict[int, np.ndarray]]] = {
    "AffineGrid": lambda shapes: {1: _ints(shapes[1][0], 1, *shapes[1][1:-1])},
    "BlackmanWindow": _window,
    "ConstantOfShape": lambda shapes: {0: _ints(*shapes[1])},
    "CumSum": lambda _: {1: np.array(0)},
    "Expand": lambda shapes: {1: _ints(*shapes[1])},
    "HammingWindow": _window,
    "HannWindow": _window,
    "Pad": _pad,
    "Range": _range,
    "Resize": _resize,
    "Reshape": lambda shapes: {1: _ints(*shapes[1])},
    "Slice": _slice,
    "Tile": _tile,
    "TopK": lambda shapes: {1: _ints(shapes[1][-1])},
    "Trilu": lambda _: {1: np.array(0)},
} | dict.fromkeys(_REDUCTIONS, _reduce)


def _data_dimension(node: onnx.NodeProto, around: Surroundings) -> int:
    shape = around.types[node.input[0]].shape
    return shape[_read_int(node, "axis", 0)]


def _leading_dimensions(node: onnx.NodeProto, around: Surroundings) -> int:
    first = _read_int(node, "batch_dims", 0)
    depth = around.types[node.input[1]].shape[-1]
    return min(around.types[node.input[0]].shape[first : first + depth], default=1)


def _one_hot_depth(node: onnx.NodeProto, around: Surroundings) -> int:
    return around.types[node.output[0]].shape[_read_int(node, "axis", -1)]


def _n_classes(node: onnx.NodeProto, around: Surroundings) -> int:
    return around.types[node.input[0]].shape[1]


def _n_output_elements(node: onnx.NodeProto, around: Surroundings) -> int:
    return int(np.prod(around.types[node.output[0]].shape, dtype=np.int64))


def _read_int(node: onnx.NodeProto, name: str, default: int) -> int:
    return next((a.i for a in node.attribute if a.name == name), default)


_BOUNDS: Mapping[tuple[str, int], Callable[[onnx.NodeProto, Surroundings], int]] = {
    ("Gather", 1): _data_dimension,
    ("GatherElements", 1): _data_dimension,
    ("GatherND", 1): _leading_dimensions,
    ("MaxUnpool", 1): _n_output_elements,
    ("NegativeLogLikelihoodLoss", 1): _n_classes,
    ("OneHot", 0): _one_hot_depth,
    ("ScatterElements", 1): _data_dimension,
    ("ScatterND", 1): _leading_dimensions,
    ("SoftmaxCrossEntropyLoss", 1): _n_classes,
}
