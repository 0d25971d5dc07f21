"""Fences under three kinds of session options: peak, order and time.

    python bench/fences.py [--costs flops|auto] [--shares 75,60] [--runs 3] [NAME ...]

One line for each tiny graph, budget, kind of options and choice of fences (and for the original
graph): peak of the plan, peaks of three runs in MiB (inputs included), whether the ops that
optimizers left alone ran in the order of the schedule, how many recomputes they left, the largest
difference of any output from the original's under the same options, milliseconds of the fastest
run.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx

from checkmate.cli.source import Asked, read_source
from checkmate.engine.solve import run_baseline, solve
from checkmate.onnxio.cutting import render_whole
from checkmate.onnxio.fence_maker import PREFIX
from checkmate.onnxio.model import Model
from checkmate.onnxio.order import HOISTED_OPS
from checkmate.onnxio.rewrite import rewrite_model
from checkmate.onnxio.windows import FENCES
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.arrays import compare_outputs
from checkmate.runtime.execute import RunOptions, RunResult, run_model
from checkmate.runtime.protocol import Manner, Settings
from checkmate.schedule import Schedule
from checkmate.search.finding import Limits

GRAPHS = Path(__file__).parent.parent / "graphs"
BATCHES = {"vgg16": 512, "mobilenetv1": 512, "resnet50": 256, "unet": 256, "gpt2": 512}
MANNERS: tuple[Manner, ...] = ("scheduled", "default", "default-no-pattern")
HEADER = (
    f"{'graph':12} {'budget':>6} {'options':19} {'fences':8} {'count':>5} {'plan':>7}"
    f" {'run 1':>7} {'run 2':>7} {'run 3':>7} {'order':>6} {'copies':>8} {'differ':>8} {'ms':>8}"
)


@dataclass(frozen=True, slots=True)
class Case:
    """One graph under one budget."""

    title: str
    model: Model
    schedule: Schedule
    plan_nbytes: int
    baseline_nbytes: int


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--costs", default="flops")
    parser.add_argument("--shares", default="75,60")
    parser.add_argument("--runs", type=int, default=3, help="timed runs")
    parser.add_argument("names", nargs="*", default=list(BATCHES))
    arguments = parser.parse_args()
    print(HEADER)
    for name in arguments.names:
        for share in map(int, arguments.shares.split(",")):
            case = make_case(name, share, arguments.costs)
            for manner in MANNERS:
                for line in measure(case, manner, arguments.runs):
                    print(line, flush=True)


def make_case(name: str, share: int, costs: str) -> Case:
    """Return the plan of a graph at a share of its peak without recompute."""
    dims = {"N": BATCHES[name]}
    source = read_source(GRAPHS / f"{name}-tiny-bN.onnx", Asked(dims, costs=costs))
    baseline = run_baseline(source.problem).peak.nbytes
    plan = solve(source.problem, baseline * share // 100, "greedy", Limits())
    title = f"{name:12} {share:5}%"
    return Case(title, source.model, plan.schedule, plan.peak.nbytes, baseline)


def measure(case: Case, manner: Manner, n_timed_runs: int) -> Iterator[str]:
    """Yield a line for the original graph, then one for each choice of fences."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        original = run(case, case.model.path, manner, n_timed_runs, folder / "original.npz")
        peak = describe(original, case.baseline_nbytes)
        gap = " " * 24
        yield f"{case.title} {manner:19} {'original':8} {'':5} {peak} {gap} {time(original)}"
        for fences in FENCES:
            rewritten = rewrite_model(case.model, case.schedule, fences)
            path = folder / "rewritten.onnx"
            path.write_bytes(render_whole(rewritten, case.model.path))
            result = run(case, path, manner, n_timed_runs, folder / "rewritten.npz")
            differences = compare_outputs(original.outputs, result.outputs)
            worst = max((d.max_error for d in differences), default=0)
            ours = [node for node in rewritten.graph.node if node.name.startswith(PREFIX)]
            count = sum(node.op_type == "Reshape" for node in ours)
            nodes = list_nodes(rewritten)
            yield (
                f"{case.title} {manner:19} {fences:8} {count:5}"
                f" {describe(result, case.plan_nbytes)} {order(nodes, result):>6}"
                f" {copies(nodes, result):>8} {worst:8.1g} {time(result)}"
            )


def run(case: Case, path: Path, manner: Manner, n_timed_runs: int, outputs: Path) -> RunResult:
    """Run ``path`` on the inputs of ``case``."""
    settings = Settings(threads=1, manner=manner)
    options = RunOptions(settings, n_runs=3, n_timed_runs=n_timed_runs, outputs=outputs)
    return run_model(path, specify_inputs(case.model), options)


def list_nodes(model: onnx.ModelProto) -> list[str]:
    """Return the names of nodes that are neither constants, nor hoisted, nor of fences."""
    return [
        node.name
        for node in model.graph.node
        if node.op_type not in {*HOISTED_OPS, "Constant"} and not node.name.startswith(PREFIX)
    ]


def describe(result: RunResult, plan_nbytes: int) -> str:
    """Return the peak of the plan and of each run in MiB."""
    given = result.inputs_nbytes + result.initializers_nbytes
    runs = " ".join(f"{(given + nbytes) / 2**20:7.1f}" for nbytes in result.run_nbytes)
    return f"{plan_nbytes / 2**20:7.1f} {runs}"


def time(result: RunResult) -> str:
    """Return the time of the fastest run."""
    return f"{result.time_ns / 1e6:8.1f}"


def order(nodes: list[str], result: RunResult) -> str:
    """Return whether the ops that still have their names ran in the order of the file."""
    planned = [name for name in nodes if name in set(result.executed)]
    ran = [name for name in result.executed if name in set(nodes)]
    return "kept" if planned == ran else "lost"


def copies(nodes: list[str], result: RunResult) -> str:
    """Return how many of the recomputes ran under their name; optimizers rename what they fuse."""
    made = {name for name in nodes if "__recompute" in name}
    return f"{len(made & set(result.executed))}/{len(made)}"


if __name__ == "__main__":
    main()
