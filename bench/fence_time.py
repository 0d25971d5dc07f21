"""What fences cost in time: one schedule with none, run and all of them, side by side.

    python bench/fence_time.py [--share 60] [--rounds 9] [--sessions 3] [NAME[:N] ...]

One line a tiny graph: how many nodes the fences are, then the milliseconds of the graph without
recompute and of the schedule with each choice of fences (medians of runs in turn, in several
sessions of each, one thread, the options that a schedule names), and what a node of a fence takes.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from checkmate.cli.source import Asked, Source, read_source
from checkmate.engine.solve import run_baseline, solve
from checkmate.onnxio.fence_maker import PREFIX
from checkmate.onnxio.model import Model
from checkmate.onnxio.rewrite import rewrite_nodes
from checkmate.onnxio.windows import FENCES
from checkmate.onnxio.write import render_model, render_planned
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.execute import race_models
from checkmate.runtime.protocol import Settings
from checkmate.schedule import Schedule
from checkmate.search.finding import Limits

GRAPHS = Path(__file__).parent.parent / "graphs"
BATCHES = {"vgg16": 128, "mobilenetv1": 512, "resnet50": 256, "unet": 256, "gpt2": 512}
HEADER = (
    f"{'graph':12} {'N':>5} {'ops':>5} {'recomputes':>10} {'run':>5} {'all':>5}"
    f" {'plain':>8} {'none':>8} {'run':>8} {'all':>8} {'us a node':>9}"
)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--share", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--sessions", type=int, default=3)
    parser.add_argument("names", nargs="*", default=[f"{k}:{n}" for k, n in BATCHES.items()])
    options = parser.parse_args()
    print(HEADER)
    for text in options.names:
        name, _, batch = text.partition(":")
        n = int(batch or BATCHES[name])
        print(measure(name, n, options), flush=True)


def measure(name: str, batch: int, options: argparse.Namespace) -> str:
    """Return the line of one graph."""
    asked = Asked({"N": batch}, costs="flops", provider="cpu", optimize=None)
    source = read_source(GRAPHS / f"{name}-tiny-bN.onnx", asked)
    model = source.model
    assert model is not None
    schedule = plan(source, options.share)
    n_ops = len(model.nodes)
    counts = [
        sum(node.name.startswith(PREFIX) for node in rewrite_nodes(model, schedule, fences))
        for fences in FENCES
    ]
    times_ms = race(model, schedule, options)
    node_us = 1000 * (times_ms[3] - times_ms[1]) / max(1, counts[2])
    shown = " ".join(f"{ms:8.2f}" for ms in times_ms)
    return (
        f"{name:12} {batch:5} {n_ops:5} {len(schedule.order) - n_ops:10} {counts[1]:5}"
        f" {counts[2]:5} {shown} {node_us:9.2f}"
    )


def plan(source: Source, share: int) -> Schedule:
    """Return a schedule in a share of the peak without recompute."""
    peak_nbytes = run_baseline(source.problem).peak.nbytes
    limits = Limits(time_s=20)
    return solve(source.problem, peak_nbytes * share // 100, "auto", limits).schedule


def race(model: Model, schedule: Schedule, options: argparse.Namespace) -> list[float]:
    """Return the median times of the plain graph and of the schedule with each fences, in ms."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number}.onnx" for number in range(1 + len(FENCES))]
        paths[0].write_bytes(render_planned(model, paths[0]))
        for fences, path in zip(FENCES, paths[1:], strict=True):
            path.write_bytes(render_model(model, schedule, path, fences))
        specs, settings = specify_inputs(model), Settings(threads=1)
        times_ns = race_models(paths, specs, settings, options.rounds, options.sessions)
    return [statistics.median(own) / 1e6 for own in times_ns]


if __name__ == "__main__":
    main()
