"""What misleads profiles of single ops: cold starts and the overhead of tiny ops.

    python bench/overhead.py [--threads 1]

A chain of convolutions and 200 tiny elementwise ops, each as a whole: the first run of a session,
which sets up what later runs find, the median and the fastest of warm ones. Then the sum of the
costs of their ops, measured one by one, over the fastest whole run: near 1 when costs can be added.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
from pathlib import Path

import onnx

from checkmate.onnxio.model import Model
from checkmate.onnxio.read import read_model
from checkmate.profiler.profile import ProfileOptions, profile_model
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.device import Device, probe_device
from checkmate.runtime.execute import race_models
from checkmate.runtime.protocol import Settings, TensorSpec, TimeTask
from checkmate.runtime.worker import Worker
from checkmate.units import format_ns

N_CONVOLUTIONS = 12
N_TINY = 200
N_ROUNDS = 30


def main() -> None:
    """Print a line for each graph."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    options = ProfileOptions(threads=parser.parse_args().threads, among=False)
    device = probe_device("auto")
    print(f"{device.name}, onnxruntime {device.onnxruntime}, {options.threads} threads")
    print("{:<24} {:>11} {:>11} {:>11} {:>11} {:>6}".format(*TITLES))
    with tempfile.TemporaryDirectory() as folder:
        for name, body in {"conv chain": make_chain(), "tiny ops": make_tiny()}.items():
            path = Path(folder) / "model.onnx"
            model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]>\n{body}')
            path.write_bytes(model.SerializeToString())
            print(measure(name, read_model(path, {}), device, options), flush=True)


TITLES = ("graph", "cold", "warm median", "warm least", "sum of ops", "ratio")


def measure(name: str, model: Model, device: Device, options: ProfileOptions) -> str:
    """Return a line of the table."""
    settings = Settings(device.provider, options.threads)
    cold_ns = time_first_run(model, settings)
    (warm_ns,) = race_models([model.path], specify_inputs(model), settings, N_ROUNDS)
    total_ns = profile_model(model, device, options, lambda _: None).costs.total_ns
    times = (cold_ns, int(statistics.median(warm_ns)), min(warm_ns), total_ns)
    columns = " ".join(f"{format_ns(time_ns):>11}" for time_ns in times)
    return f"{name:<24} {columns} {total_ns / min(warm_ns):>6.3f}"


def time_first_run(model: Model, settings: Settings) -> int:
    """Return the time of the first run of a session in a new process."""
    specs = specify_inputs(model)
    outputs = [
        TensorSpec(item.name, model.types[item.name].elem_type, model.types[item.name].shape)
        for item in model.proto.graph.output
    ]
    task = TimeTask(
        str(model.path), settings, specs, tuple(outputs), 0, 1, 0, workspace_by="statistics"
    )
    with Worker() as worker:
        cold_ns = worker.ask(task)["cold_ns"]
    assert isinstance(cold_ns, int)
    return cold_ns


def make_chain() -> str:
    """Return a chain of convolutions."""
    image, kernel = "float[8, 32, 32, 32]", "float[32, 32, 3, 3]"
    names = ["x", *(f"h{i}" for i in range(1, N_CONVOLUTIONS)), "y"]
    pairs = enumerate(itertools.pairwise(names), start=1)
    steps = [f"{out} = Conv <pads = [1, 1, 1, 1]> ({in_}, w{i})" for i, (in_, out) in pairs]
    weights = ", ".join(f"{kernel} w{i}" for i in range(1, N_CONVOLUTIONS + 1))
    return f"chain ({image} x, {weights}) => ({image} y) {{ {' '.join(steps)} }}"


def make_tiny() -> str:
    """Return a chain of elementwise ops on 64 numbers."""
    names = ["x", *(f"h{i}" for i in range(1, N_TINY)), "y"]
    kinds = ("Tanh", "Sigmoid", "Neg", "Abs")
    pairs = enumerate(itertools.pairwise(names))
    steps = [f"{out} = {kinds[i % len(kinds)]} ({in_})" for i, (in_, out) in pairs]
    return f"tiny (float[64] x) => (float[64] y) {{ {' '.join(steps)} }}"


if __name__ == "__main__":
    main()
