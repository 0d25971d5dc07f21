"""Odd and damaged models and documents through the commands: documented endings, right plans.

    python bench/fuzz.py [--inputs 20000] [--through-command 300] [--seconds 3600] [--seed 0]
                         [--keep FOLDER]

Four of five inputs are models: the tiny graphs of `graphs/` and small ones with control flow,
random ops and odd types. Most are edited so that they stay valid (`tests/edits.py`, drawn with
hypothesis), the others damaged in their structure or in their bytes (`bench/mutations.py`). The
rest are damaged schedules, costs and problems (`bench/mutations_json.py`). Each is solved, shown,
compared, exported or checked in a forked child that may take 1 GiB of data and 10 seconds of
processor time (`bench/fuzz_child.py`); some go through the real command. What `solve` writes has
to pass `check`, and onnxruntime has to give the numbers of the original with it, bit for bit; the
same is asked of edited models that are rewritten with recomputes and fences at random
(`bench/fuzz_runs.py`). Where all ops do without workspace, the run may take no byte more than was
planned, and has to complete in its arena. Prints the count of each ending, and every input that
ended as none may: by a bug (exit 1), a hang, a signal, a shortage of memory or other numbers. Those
are kept in the folder of ``--keep``. Ends with 1 when there are any.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice, takewhile
from pathlib import Path

# Imported here, once, rather than by each child.
import onnx.reference

from fuzz_cases import DOCUMENT_COMMANDS, Case, load_seeds, make_cases, make_documents
from fuzz_child import REWRITE, Verdict, judge, run_many

BATCH = 50
"""Inputs per child; one that ends a child does not take the others with it."""


def main() -> None:
    """Edit, damage, run, count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--through-command", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of each; then stop")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path("fuzz"))
    options = parser.parse_args()
    for name in ("check", "compare", "export", "show", "solve"):
        importlib.import_module(f"checkmate.cli.{name}")
    kept, n_bugs = options.keep.absolute(), 0
    runs = (("forked", options.inputs, run_forked), ("command", options.through_command, run_whole))
    with tempfile.TemporaryDirectory() as name:
        # Caches and outputs go where they are lost.
        os.environ["XDG_CACHE_HOME"] = name
        os.environ["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, sys.path))
        os.chdir(name)
        valid, seeds = make_documents(), load_seeds()
        # What is there before a fork is not looked at by the garbage collector of a child.
        gc.freeze()
        for title, count, run in runs:
            cases = make_cases(f"{options.seed}-{title}", valid, seeds)
            if title == "command":
                cases = (case for case in cases if case.arguments[0] != REWRITE)
            cases = stop_after(options.seconds, islice(cases, count))
            n_bugs += count_endings(title, run(cases, valid), kept)
    sys.exit(1 if n_bugs else 0)


def stop_after(limit_s: float, cases: Iterator[Case]) -> Iterator[Case]:
    """Yield cases until the time is up."""
    began_s = time.monotonic()
    return takewhile(lambda _: time.monotonic() - began_s < limit_s, cases)


def place(case: Case, valid: dict[str, bytes]) -> None:
    """Write the file of ``case``, and valid ones beside it."""
    is_model = not any(name in case.arguments for name in DOCUMENT_COMMANDS)
    changed = "m.onnx" if is_model else find_changed(case)
    for name, content in valid.items():
        Path(name).write_bytes(case.content if name == changed else content)


def find_changed(case: Case) -> str:
    """Return which document of the command is the damaged one."""
    for name in ("costs.json", "problem-schedule.json", "schedule.json", "problem.json"):
        if name in case.arguments:
            return name
    return "m.onnx"


def run_forked(cases: Iterator[Case], valid: dict[str, bytes]) -> Iterator[tuple[Case, Verdict]]:
    """Run in forks of this process, which has everything imported."""

    def start(case: Case) -> tuple[str, ...]:
        place(case, valid)
        return case.arguments

    while batch := list(islice(cases, BATCH)):
        while batch:
            verdicts = run_many([lambda case=case: start(case) for case in batch])
            yield from zip(batch, verdicts, strict=False)
            batch = batch[len(verdicts) :]


def run_whole(cases: Iterator[Case], valid: dict[str, bytes]) -> Iterator[tuple[Case, Verdict]]:
    """Run the command as a user does."""
    for case in cases:
        place(case, valid)
        command = [sys.executable, "-m", "checkmate", *case.arguments]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=60, check=False
            )
        except subprocess.TimeoutExpired:
            yield case, Verdict("hang", is_bug=True)
        else:
            yield case, judge(done.returncode, done.stderr)


def count_endings(title: str, outcomes: Iterator[tuple[Case, Verdict]], kept: Path) -> int:
    """Print how inputs ended and what is wrong; return the number of bugs."""
    endings: Counter[str] = Counter()
    began_s = time.monotonic()
    n_bugs = n_planned = 0
    for case, verdict in outcomes:
        endings[verdict.ending] += 1
        n_planned += verdict.is_planned
        if verdict.is_bug:
            n_bugs += 1
            kept.mkdir(parents=True, exist_ok=True)
            (kept / case.name).write_bytes(case.content)
            print(f"{case.name}: {verdict.ending}: {' '.join(case.arguments)}", flush=True)
    took_s, total = time.monotonic() - began_s, max(1, endings.total())
    print(title, endings.total(), dict(endings.most_common()), f"{took_s:.0f} s", flush=True)
    print(f"planned or read to the end: {n_planned} ({n_planned / total:.0%})", flush=True)
    return n_bugs


if __name__ == "__main__":
    assert onnx.reference
    main()
