"""Profile the tiny example graphs: seconds per signature, and op costs against the whole graph.

    python bench/profile.py [--batch 64] [--threads 1] [--runs 50] [GRAPH.onnx ...]

The last columns should be near 1: what the ops cost one by one, and among the others, over what the
graph takes.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

from checkmate.onnxio.model import Model
from checkmate.onnxio.read import read_model
from checkmate.profiler.profile import (
    Profile,
    ProfileOptions,
    measure_whole_graph_ns,
    profile_model,
)
from checkmate.runtime.device import Device, probe_device
from checkmate.units import format_ns

GRAPHS = Path(__file__).parent.parent / "graphs"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "graphs", nargs="*", type=Path, default=sorted(GRAPHS.glob("*-tiny-bN.onnx"))
    )
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=50)
    arguments = parser.parse_args()
    device = probe_device("auto")
    options = ProfileOptions(threads=arguments.threads, max_runs=arguments.runs)
    print(f"{device.name}, onnxruntime {device.onnxruntime}, {arguments.threads} threads")
    titles = ("graph", "ops", "kinds", "s/kind", "s among", "whole", "alone", "among")
    print("{:<22} {:>5} {:>5} {:>7} {:>7} {:>11} {:>6} {:>6}".format(*titles))
    for path in arguments.graphs:
        print(measure(path, arguments.batch, device, options), flush=True)


def measure(path: Path, batch: int, device: Device, options: ProfileOptions) -> str:
    """Return one line of the table."""
    is_symbolic = path.stem.endswith("bN")
    model = read_model(path, {"N": batch} if is_symbolic else {})
    before_ns = measure_whole_graph_ns(model, device, options)
    alone, alone_s = profile(model, device, replace(options, among=False))
    among, among_s = profile(model, device, options)
    whole_ns = min(before_ns, measure_whole_graph_ns(model, device, options))
    for estimated in alone.estimated:
        print(f"  estimated: {estimated.op}: {estimated.reason}")
    ratios = (found.costs.total_ns / whole_ns for found in (alone, among))
    return (
        f"{path.stem:<22} {len(model.nodes):>5} {alone.n_signatures:>5}"
        f" {alone_s / alone.n_signatures:>7.3f} {among_s - alone_s:>7.1f}"
        f" {format_ns(whole_ns):>11} {' '.join(f'{ratio:>6.3f}' for ratio in ratios)}"
    )


def profile(model: Model, device: Device, options: ProfileOptions) -> tuple[Profile, float]:
    """Return a profile and how many seconds it took."""
    start = time.perf_counter()
    found = profile_model(model, device, options, lambda _: None)
    return found, time.perf_counter() - start


if __name__ == "__main__":
    main()
