"""What onnxruntime's optimizers gain when they run before the plan, and when they run as usual.

    python bench/optimize.py [--rounds 10] [--costs auto|flops] [NAME ...]

One line for each graph and level: ops; peak without recompute in MiB; milliseconds of the fastest
run of that graph in file order with nothing further optimized; at one budget for all three levels,
the planned peak, the measured peak and the planned overhead; milliseconds of the fastest run of
the rewritten graph. Before them, the graph as it is under onnxruntime's default options, which
optimize as far as they can, and keep neither an order nor a peak. All files of a graph run in
turn, on one thread, by processor time. `gpt2-12` is the GPT-2 of 12 blocks with one sequence of 128
tokens and 2,048 words.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

import numpy as np
import onnx
from onnx import numpy_helper

from checkmate.cli.source import Asked, Source, read_source
from checkmate.engine.solve import run_baseline, solve
from checkmate.formats.schedule_json import Optimization
from checkmate.onnxio.write import render_model, render_planned
from checkmate.plan import Plan
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.execute import RunOptions, race_models, run_model
from checkmate.runtime.protocol import Settings
from checkmate.search.finding import Limits

GRAPHS = Path(__file__).parent.parent / "graphs"
BATCHES = {"vgg16": 128, "mobilenetv1": 128, "resnet50": 64, "unet": 64, "gpt2": 128, "gpt2-12": 1}
SHARES = {"vgg16": 80, "gpt2-12": 85}
"""Percent of the peak without recompute, where not 60: less does not fit."""
SMALLER = {1024: 128, 8: 1, 50257: 2048}
"""Sequence, batch and vocabulary of `gpt2-full-b8` in `gpt2-12`."""
HEADER = (
    f"{'graph':12} {'level':9} {'ops':>5} {'peak':>7} {'ms':>8} {'budget':>7} {'planned':>7}"
    f" {'measured':>8} {'overhead':>8} {'ms':>8}"
)


@dataclass(frozen=True, slots=True)
class Case:
    """One graph at one level."""

    level: Optimization
    source: Source
    plan: Plan
    planned: Path
    rewritten: Path


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--costs", default="auto")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("names", nargs="*", default=list(BATCHES))
    arguments = parser.parse_args()
    print(HEADER)
    for name in arguments.names:
        with tempfile.TemporaryDirectory() as folder:
            for line in measure(name, Path(folder), arguments.costs, arguments.rounds):
                print(line, flush=True)


def measure(name: str, folder: Path, costs: str, n_rounds: int) -> Iterator[str]:
    """Yield a line for the defaults of onnxruntime, then one for each level."""
    is_small = name != "gpt2-12"
    path = GRAPHS / f"{name}-tiny-bN.onnx" if is_small else derive_gpt2(folder)
    asked = Asked({"N": BATCHES[name]} if is_small else {}, costs=costs, provider="cpu")
    sources = {level: read_source(path, replace(asked, optimize=level)) for level in levels()}
    before_nbytes = run_baseline(sources["none"].problem).peak.nbytes
    budget_nbytes = before_nbytes * SHARES.get(name, 60) // 100
    cases = [make_case(level, sources[level], budget_nbytes, folder) for level in levels()]
    default_ms, *times_ms = race(path, cases, n_rounds)
    n_ops = len(sources["none"].problem.graph.ops)
    yield f"{name:12} {'default':9} {n_ops:5} {'':7} {default_ms:8.1f}"
    for position, case in enumerate(cases):
        baseline = run_baseline(case.source.problem)
        overhead = case.plan.time_ns / baseline.time_ns - 1
        yield (
            f"{name:12} {case.level:9} {len(case.source.problem.graph.ops):5}"
            f" {baseline.peak.nbytes / 2**20:7.1f} {times_ms[2 * position]:8.1f}"
            f" {budget_nbytes / 2**20:7.1f} {case.plan.peak.nbytes / 2**20:7.1f}"
            f" {measure_peak_nbytes(case) / 2**20:8.1f} {100 * overhead:8.2f}"
            f" {times_ms[2 * position + 1]:8.1f}"
        )


def levels() -> tuple[Optimization, ...]:
    """Return every level, least first."""
    return get_args(Optimization)


def make_case(level: Optimization, source: Source, budget_nbytes: int, folder: Path) -> Case:
    """Return the plan within ``budget_nbytes`` and the files of both graphs."""
    plan = solve(source.problem, budget_nbytes, "stages", Limits(time_s=60))
    assert source.model is not None
    planned, rewritten = folder / f"{level}.onnx", folder / f"{level}-rewritten.onnx"
    planned.write_bytes(render_planned(source.model, planned))
    rewritten.write_bytes(render_model(source.model, plan.schedule, rewritten))
    return Case(level, source, plan, planned, rewritten)


def race(path: Path, cases: Sequence[Case], n_rounds: int) -> list[float]:
    """Return the fastest run of the original by default, then of the graphs of each case, in ms."""
    model = cases[0].source.model
    assert model is not None
    specs = specify_inputs(model)
    files = [file for case in cases for file in (case.planned, case.rewritten)]
    runs: list[list[int]] = [[] for _ in range(len(files) + 1)]
    for _ in range(2):
        ours = race_models(files, specs, Settings(threads=1), n_rounds // 2)
        default = race_models([path], specs, Settings(threads=1, manner="default"), n_rounds // 2)
        for kept, new in zip(runs, (*default, *ours), strict=True):
            kept.extend(new)
    return [min(times) / 1e6 for times in runs]


def measure_peak_nbytes(case: Case) -> int:
    """Return the most that a run of the rewritten graph holds."""
    model = case.source.model
    assert model is not None
    specs = specify_inputs(model)
    fed = {spec.name for spec in specs}
    weights = [t.nbytes for t in model.graph.tensors if t.producer is None and t.name not in fed]
    options = RunOptions(Settings(threads=1), initializers_nbytes=sum(weights))
    peak_nbytes = run_model(case.rewritten, specs, options).peak_nbytes
    assert peak_nbytes is not None
    return peak_nbytes


def derive_gpt2(folder: Path) -> Path:
    """Write a GPT-2 of full depth and width, but with fewer tokens and words."""
    model = onnx.load(GRAPHS / "gpt2-full-b8.onnx")
    for tensor in model.graph.initializer:
        value = numpy_helper.to_array(tensor)
        if value.dtype.kind == "i":
            smaller = np.array([SMALLER.get(n, n) for n in value.ravel().tolist()], value.dtype)
            tensor.CopyFrom(numpy_helper.from_array(smaller.reshape(value.shape), tensor.name))
    for item in (*model.graph.input, *model.graph.output):
        for dim in item.type.tensor_type.shape.dim:
            dim.dim_value = SMALLER.get(dim.dim_value, dim.dim_value)
    del model.graph.value_info[:]
    path = folder / "gpt2-12.onnx"
    path.write_bytes(model.SerializeToString())
    return path


if __name__ == "__main__":
    main()
