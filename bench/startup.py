"""How long the command takes to start: median of several processes, in seconds."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

N_RUNS = 9
COMMANDS = {
    "python, doing nothing": ["-c", "pass"],
    "import checkmate": ["-c", "import checkmate"],
    "checkmate --help": ["-m", "checkmate", "--help"],
    "checkmate solve --help": ["-m", "checkmate", "solve", "--help"],
}


def measure_s(arguments: list[str]) -> float:
    """Return the median seconds of running Python with ``arguments``."""
    times = []
    for _ in range(N_RUNS):
        started = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


if __name__ == "__main__":
    for name, arguments in COMMANDS.items():
        print(f"{name:24} {measure_s(arguments):.3f} s")
