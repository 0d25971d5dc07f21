"""Costs counted from shapes: no run, no device, the same integers everywhere.

The roofline of Williams, Waterman and Patterson ("Roofline: An Insightful Visual Performance
Model for Multicore Architectures", CACM 2009): an op takes as long as its arithmetic or its
memory traffic, whichever is longer, and each launch takes a little.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import onnx

from checkmate.costs import Costs, Origin
from checkmate.onnxio.body_memory import count_workspace_nbytes
from checkmate.onnxio.model import Body, Model, TensorType
from checkmate.profiler.surroundings import Surroundings, count_tensor_nbytes, survey


@dataclass(frozen=True, slots=True)
class Rates:
    """How fast a processor is, in what it sustains rather than what its maker prints."""

    flops_per_us: int
    bytes_per_us: int
    launch_ns: int


ACCELERATOR = Rates(flops_per_us=10_000_000, bytes_per_us=700_000, launch_ns=5_000)
"""A training accelerator of the V100's class: 10 TFLOP/s, 700 GB/s, 5 us to launch a kernel."""

PROCESSOR = Rates(flops_per_us=50_000, bytes_per_us=8_000, launch_ns=2_000)
"""A few cores of a server: 50 GFLOP/s, 8 GB/s."""


def estimate_costs(model: Model) -> Costs:
    """Return the costs of the ops of ``model`` on a training accelerator.

    Views cost nothing. Only control flow has workspace, what its bodies hold: shapes do not tell
    what a kernel takes.
    """
    around = survey(model)
    graph = model.graph
    time_ns: list[int] = []
    workspace_nbytes: list[int] = []
    for op, node in zip(graph.ops, model.nodes, strict=True):
        is_view = any(graph.tensors[tensor].source is not None for tensor in op.outputs)
        time_ns.append(0 if is_view else estimate_op_ns(node, around, ACCELERATOR))
        workspace_nbytes.append(count_workspace_nbytes(around.find_bodies(node)))
    return Costs(tuple(time_ns), tuple(workspace_nbytes), Origin("flops"))


def estimate_op_ns(node: onnx.NodeProto, around: Surroundings, rates: Rates) -> int:
    """Return the time of one run of ``node``; of branches, the longest."""
    bodies = around.find_bodies(node)
    if bodies:
        return rates.launch_ns + max(_estimate_body_ns(body, around, rates) for body in bodies)
    arithmetic_ns = 1000 * count_flops(node, around) // rates.flops_per_us
    traffic_ns = 1000 * count_traffic_nbytes(node, around) // rates.bytes_per_us
    return rates.launch_ns + max(arithmetic_ns, traffic_ns)


def _estimate_body_ns(body: Body, around: Surroundings, rates: Rates) -> int:
    inner = around.enter(body)
    nodes = (w.node for w in body.wirings if w.node.op_type != "Constant")
    return body.n_turns * sum(estimate_op_ns(node, inner, rates) for node in nodes)


def count_flops(node: onnx.NodeProto, around: Surroundings) -> int:
    """Return the additions and multiplications of one run of ``node``.

    Products and convolutions by their formula, a fused multiplication and addition counting two;
    all else one per element of the largest tensor, times a constant for functions.
    """
    inputs = [around.types[name] for name in node.input if name in around.types]
    outputs = [around.types[name] for name in node.output if name in around.types]
    count = _PRODUCTS.get(node.op_type)
    if count is not None and len(inputs) > 1 and outputs:
        return count(node, inputs, outputs)
    largest = max((math.prod(known.shape) for known in (*inputs, *outputs)), default=0)
    return largest * _FLOPS_PER_ELEMENT.get(node.op_type, 1)


def count_traffic_nbytes(node: onnx.NodeProto, around: Surroundings) -> int:
    """Return the bytes that one run of ``node`` reads and writes."""
    written = [count_tensor_nbytes(around.types[n]) for n in node.output if n in around.types]
    if node.op_type in _READS_NOTHING:
        return sum(written)
    names = [name for name in dict.fromkeys(node.input) if name in around.types]
    read = [count_tensor_nbytes(around.types[name]) for name in names]
    if node.op_type in _READS_A_PART and read:
        read[0] = min(read[0], sum(written))
    return sum(read) + sum(written)


_READS_NOTHING = frozenset({"ConstantOfShape", "Shape", "Size"})
_READS_A_PART = frozenset({"Gather", "GatherElements", "GatherND", "Slice"})
"""Of their first input they read no more than they write."""

_FLOPS_PER_ELEMENT: Mapping[str, int] = {
    "BatchNormalization": 4,
    "BiasGelu": 15,
    "BiasSoftmax": 15,
    "Cos": 10,
    "Erf": 10,
    "Exp": 10,
    "FastGelu": 15,
    "Gelu": 15,
    "GroupNormalization": 8,
    "InstanceNormalization": 8,
    "LayerNormalization": 8,
    "Log": 10,
    "LogSoftmax": 15,
    "Pow": 15,
    "QuickGelu": 15,
    "Sigmoid": 12,
    "SimplifiedLayerNormalization": 6,
    "Sin": 10,
    "SkipLayerNormalization": 9,
    "SkipSimplifiedLayerNormalization": 7,
    "Softmax": 15,
    "Softplus": 20,
    "Sqrt": 4,
    "Tanh": 12,
}


def _count_convolution(
    node: onnx.NodeProto, inputs: list[TensorType], outputs: list[TensorType]
) -> int:
    """Each output element reads a window of ``channels / group`` per kernel position."""
    return 2 * math.prod(outputs[0].shape) * math.prod(inputs[1].shape[1:])


def _count_transposed(
    node: onnx.NodeProto, inputs: list[TensorType], outputs: list[TensorType]
) -> int:
    """Each input element is spread over a window of ``channels / group`` per kernel position."""
    return 2 * math.prod(inputs[0].shape) * math.prod(inputs[1].shape[1:])


def _count_convolution_gradient(
    node: onnx.NodeProto, inputs: list[TensorType], outputs: list[TensorType]
) -> int:
    """One convolution per gradient that is asked for, of data and of weights."""
    n_gradients = sum(1 for name in node.output[:2] if name)
    windows = math.prod(inputs[-1].shape[1:])
    return 2 * n_gradients * math.prod(inputs[0].shape) * windows


def _count_gemm(node: onnx.NodeProto, inputs: list[TensorType], outputs: list[TensorType]) -> int:
    is_transposed = any(a.name == "transA" and a.i for a in node.attribute)
    depth = inputs[0].shape[0 if is_transposed else -1]
    return 2 * math.prod(outputs[0].shape) * depth


def _count_matmul(node: onnx.NodeProto, inputs: list[TensorType], outputs: list[TensorType]) -> int:
    flags = {a.name for a in node.attribute if a.i} if len(inputs[0].shape) > 1 else set()
    # FusedMatMul may have its batch between the two dimensions of its matrices.
    first = 0 if "transBatchA" in flags else -2
    return 2 * math.prod(outputs[0].shape) * inputs[0].shape[first if "transA" in flags else -1]


_PRODUCTS: Mapping[str, Callable[[onnx.NodeProto, list[TensorType], list[TensorType]], int]] = {
    "Conv": _count_convolution,
    "ConvGrad": _count_convolution_gradient,
    "ConvTranspose": _count_transposed,
    "ConvTransposeGrad": _count_convolution_gradient,
    "FusedConv": _count_convolution,
    "FusedGemm": _count_gemm,
    "FusedMatMul": _count_matmul,
    "FusedMatMulActivation": _count_matmul,
    "Gemm": _count_gemm,
    "MatMul": _count_matmul,
    "TransposeMatMul": _count_matmul,
}
