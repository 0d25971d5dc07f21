"""Profile the tiny example graphs: seconds per signature, and op costs against the whole graph.

    python bench/profile.py [--batch 64] [--threads 1] [--runs 50] [GRAPH.onnx ...]

The last column should be near 1: what the ops cost one by one, over what the graph takes.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from checkmate.onnxio.read import read_model
from checkmate.profiler.profile import ProfileOptions, measure_whole_graph_ns, profile_model
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
    titles = ("graph", "ops", "kinds", "s/kind", "sum", "whole", "ratio")
    print("{:<22} {:>5} {:>5} {:>7} {:>11} {:>11} {:>6}".format(*titles))
    for path in arguments.graphs:
        print(measure(path, arguments.batch, device, options), flush=True)


def measure(path: Path, batch: int, device: Device, options: ProfileOptions) -> str:
    """Return one line of the table."""
    is_symbolic = path.stem.endswith("bN")
    model = read_model(path, {"N": batch} if is_symbolic else {})
    before_ns = measure_whole_graph_ns(model, device, options)
    start = time.perf_counter()
    profile = profile_model(model, device, options, lambda _: None)
    seconds = time.perf_counter() - start
    whole_ns = min(before_ns, measure_whole_graph_ns(model, device, options))
    total_ns = profile.costs.total_ns
    for estimated in profile.estimated:
        print(f"  estimated: {estimated.op}: {estimated.reason}")
    return (
        f"{path.stem:<22} {len(model.nodes):>5} {profile.n_signatures:>5}"
        f" {seconds / profile.n_signatures:>7.3f} {format_ns(total_ns):>11}"
        f" {format_ns(whole_ns):>11} {total_ns / whole_ns:>6.3f}"
    )


if __name__ == "__main__":
    main()
