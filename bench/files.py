"""How long reading a model and writing its schedule take, for the full graphs, in seconds."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from checkmate.files import write_files
from checkmate.graph import OpId
from checkmate.liveness import insert_frees
from checkmate.onnxio.digest import digest_model
from checkmate.onnxio.read import read_model
from checkmate.onnxio.write import render_model

GRAPHS = Path(__file__).parent.parent / "graphs"


def main() -> None:
    """Print one line a graph."""
    print(f"{'graph':24} {'ops':>6} {'read':>8} {'digest':>8} {'rewrite and write':>18}")
    for path in sorted(GRAPHS.glob("*-full-*.onnx")):
        started = time.perf_counter()
        model = read_model(path, {})
        read = time.perf_counter()
        digest_model(model)
        digested = time.perf_counter()
        order = [OpId(i) for i in range(len(model.graph.ops))]
        schedule = insert_frees(model.graph, order)
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "out.onnx"
            write_files({out: render_model(model, schedule, out)})
        wrote = time.perf_counter()
        times = (read - started, digested - read, wrote - digested)
        print(f"{path.stem:24} {len(order):6} {times[0]:8.3f} {times[1]:8.3f} {times[2]:18.3f}")


if __name__ == "__main__":
    main()
