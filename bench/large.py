"""Seconds and memory of the tool on very large graphs, step by step and from file to files.

    python bench/large.py [--layers 2860] [--budget 70%]

Three graphs, made here: ``deep``, the training of a perceptron of many layers (7 ops a layer);
``chain``, 5,000 elementwise ops in a row; ``wide``, one tensor with 5,000 readers. Each is solved
greedily, as it is and with the default options (optimized, in an arena, with fences). Seconds are
of the processor, those of child processes included.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import onnx
from onnx import helper

from checkmate.cli.source import Asked, read_source
from checkmate.folding import fold_views
from checkmate.heuristics.greedy import improve_within
from checkmate.heuristics.keep_all import order_all
from checkmate.liveness import insert_frees
from checkmate.onnxio.read import read_model
from checkmate.search.phases import GREEDY_EFFORT, GREEDY_MOST_RUNS
from checkmate.simulate import simulate

T = TypeVar("T")
FLOAT = onnx.TensorProto.FLOAT


def main() -> None:
    """Make the graphs and print what each step of each takes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=2860)
    parser.add_argument("--budget", default="70%")
    options = parser.parse_args()
    graphs = {"deep": make_deep(options.layers), "chain": make_chain(5000), "wide": make_wide(5000)}
    print("graph | ops | step | s | MiB")
    with tempfile.TemporaryDirectory() as folder:
        for name, model in graphs.items():
            path = Path(folder) / f"{name}.onnx"
            path.write_bytes(model.SerializeToString())
            n_ops = len(model.graph.node)
            share = float(options.budget.rstrip("%")) / 100
            for step, took_s, nbytes in (*run_steps(path, share), *run_whole(path, options.budget)):
                print(f"{name} | {n_ops} | {step} | {took_s:.1f} | {nbytes >> 20}", flush=True)


def run_steps(path: Path, share: float) -> Iterator[tuple[str, float, int]]:
    """Yield steps in this process, with their seconds and the most memory of it so far."""
    _, took_s = clock(lambda: read_model(path, {}))
    yield "read", took_s, measure_own()
    problem = read_source(path, Asked({}, costs="flops")).problem
    folded = fold_views(problem).folded
    order = order_all(folded)
    kept, took_s = clock(lambda: simulate(folded, insert_frees(folded.graph, order)))
    yield "simulate", took_s, measure_own()
    effort = max(1, min(GREEDY_EFFORT, GREEDY_MOST_RUNS // len(order)))
    budget_nbytes = int(kept.peak.nbytes * share)
    _, took_s = clock(lambda: list(improve_within(folded, budget_nbytes, effort)))
    yield f"greedy, {effort} parameter sets", took_s, measure_own()


def run_whole(path: Path, budget: str) -> Iterator[tuple[str, float, int]]:
    """Yield the whole command, as the graph is and by default, with seconds and its memory."""
    common = ["--budget", budget, "--costs", "flops", "--strategy", "greedy"]
    for step, more in (
        ("solve, as it is", ["--optimize", "none", "--no-arena"]),
        ("solve", []),
    ):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "checkmate", "solve", path.name, *common, *more]
        done = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        yield f"{step}: exit {done.returncode}", took_s, after.ru_maxrss * 1024


def clock(step: Callable[[], T]) -> tuple[T, float]:
    """Return what ``step`` returns and the seconds of the processor that it took."""
    began_s = time.process_time()
    result = step()
    return result, time.process_time() - began_s


def measure_own() -> int:
    """Return the most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def make_deep(n_layers: int) -> onnx.ModelProto:
    """Return the training graph of ``n_layers`` layers of 32 with tanh, for a batch of 64."""
    nodes, inputs, outputs = [], {"x": (64, 32), "one": (64, 32)}, {"loss": ()}
    for i in range(n_layers):
        inputs[f"w{i}"] = (32, 32)
        nodes.append(helper.make_node("MatMul", [f"h{i - 1}" if i else "x", f"w{i}"], [f"z{i}"]))
        nodes.append(helper.make_node("Tanh", [f"z{i}"], [f"h{i}"]))
    nodes.append(helper.make_node("ReduceSum", [f"h{n_layers - 1}"], ["loss"], keepdims=0))
    above = "one"
    for i in reversed(range(n_layers)):
        below = f"h{i - 1}" if i else "x"
        nodes += [
            helper.make_node("Mul", [f"h{i}", f"h{i}"], [f"s{i}"]),
            helper.make_node("Mul", [above, f"s{i}"], [f"t{i}"]),
            helper.make_node("Sub", [above, f"t{i}"], [f"dz{i}"]),
            helper.make_node("Gemm", [below, f"dz{i}"], [f"dw{i}"], transA=1),
        ]
        if i:
            nodes.append(helper.make_node("Gemm", [f"dz{i}", f"w{i}"], [f"g{i}"], transB=1))
        above = f"g{i}"
        outputs[f"dw{i}"] = (32, 32)
    return make_model(nodes, inputs, outputs)


def make_chain(n_ops: int) -> onnx.ModelProto:
    """Return ``n_ops`` elementwise ops in a row, of which every second saves its output."""
    half = n_ops // 2
    nodes = [helper.make_node("Tanh", [f"a{i - 1}" if i else "x"], [f"a{i}"]) for i in range(half)]
    for i in reversed(range(half)):
        above = f"g{i + 1}" if i < half - 1 else f"a{half - 1}"
        nodes.append(helper.make_node("Mul", [above, f"a{i}"], [f"g{i}"]))
    return make_model(nodes, {"x": (64, 32)}, {"g0": (64, 32)})


def make_wide(n_readers: int) -> onnx.ModelProto:
    """Return a graph in which one tensor has ``n_readers`` readers, summed up in turn."""
    nodes = [helper.make_node("Exp", ["x"], ["a"]), helper.make_node("Neg", ["a"], ["s0"])]
    for i in range(n_readers // 2):
        nodes.append(helper.make_node("Tanh", ["a"], [f"b{i}"]))
        nodes.append(helper.make_node("Sum", [f"s{i}", f"b{i}", "a"], [f"s{i + 1}"]))
    for i in range(n_readers // 2):
        last = f"s{n_readers // 2 + i}"
        nodes.append(helper.make_node("Add", [last, f"b{i}"], [f"s{n_readers // 2 + i + 1}"]))
    return make_model(nodes, {"x": (64, 32)}, {f"s{2 * (n_readers // 2)}": (64, 32)})


def make_model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, ...]],
    outputs: dict[str, tuple[int, ...]],
) -> onnx.ModelProto:
    """Return the model with float inputs and outputs of these shapes."""

    def declare(shapes: dict[str, tuple[int, ...]]) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(name, FLOAT, shapes[name]) for name in shapes]

    graph = helper.make_graph(nodes, "large", declare(inputs), declare(outputs))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


if __name__ == "__main__":
    main()
