"""Damaged models and documents through the commands: only documented endings, no hang.

    python bench/fuzz.py [--inputs 20000] [--through-command 300] [--seed 0] [--keep FOLDER]

Half of the inputs are models, damaged in their structure (`bench/mutations.py`) or in their bytes:
the tiny graphs of `graphs/` and small ones with control flow, random ops and odd types. The
others are schedules, costs and problems (`bench/mutations_json.py`). Each is solved, shown,
compared, exported or checked in a forked child that may take 1 GiB of data and 10 seconds of
processor time (`bench/fuzz_child.py`); some go through the real command. Prints the count of each
ending, and every input that ended as none may: by a bug (exit 1), a hang, a signal or a shortage
of memory. Those are kept in the folder of ``--keep``. Ends with 1 when there are any.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from itertools import islice
from pathlib import Path

import onnx

from fuzz_child import Verdict, judge, run_here, run_many
from fuzz_models import SMALL, TRAINING
from mutations import mutate_bytes, mutate_structure
from mutations_json import mutate_document

GRAPHS = Path(__file__).parent.parent / "graphs"
BATCH = 50
"""Inputs per child; one that ends a child does not take the others with it."""
AS_IS = ("--optimize", "none", "--no-arena")
FLOPS = ("--costs", "flops")
GREEDY = ("--strategy", "greedy")
CHEAP = tuple(f"--strategy={name}" for name in ("keep-all", "greedy", "chen-sqrt", "revolve"))
MODEL_COMMANDS = (
    *(("solve", "m.onnx", "--budget", "60%", *FLOPS, *GREEDY, *AS_IS),) * 4,
    ("solve", "m.onnx", "--budget", "min", *FLOPS, *AS_IS, "--time-limit", "1s", "--json"),
    ("solve", "m.onnx", "--budget", "90%", *FLOPS, "--optimize", "none", "--time-limit", "1s"),
    *(("show", "m.onnx"), ("show", "m.onnx", "--json")) * 2,
    ("show", "m.onnx", "--list-dims"),
    ("export", "m.onnx", "-o", "e.json", *FLOPS, "--optimize", "none"),
    (
        "compare",
        "m.onnx",
        "--budget",
        "70%",
        *FLOPS,
        "--optimize",
        "none",
        *CHEAP,
        "--time-limit=1s",
    ),
)
DEFAULT_COMMANDS = (
    ("solve", "m.onnx", "--budget", "80%", "--time-limit", "2s"),
    ("solve", "m.onnx", "--budget", "80%", *FLOPS, "--time-limit", "1s"),
    ("show", "m.onnx", "--shapes-from-run"),
)
"""These start children of onnxruntime, which take most of a second."""
DEFAULT_SHARE = 0.01
DOCUMENT_COMMANDS = {
    "schedule.json": (
        ("check", "m.onnx", "schedule.json"),
        ("check", "problem.json", "schedule.json"),
        ("show", "schedule.json"),
        ("show", "schedule.json", "--model", "m.onnx", "--json"),
    ),
    "problem-schedule.json": (
        ("check", "problem.json", "problem-schedule.json"),
        ("show", "problem-schedule.json", "--model", "problem.json"),
    ),
    "problem.json": (
        ("solve", "problem.json", "--budget", "60%", *GREEDY),
        ("solve", "problem.json", "--budget", "80%", "--time-limit", "1s", "--json"),
        ("compare", "problem.json", "--budget", "70%", *CHEAP, "--time-limit=1s"),
        ("show", "problem.json"),
        ("check", "problem.json", "problem-schedule.json"),
    ),
    "costs.json": (
        ("solve", "m.onnx", "--budget", "60%", "--costs", "costs.json", *GREEDY, *AS_IS),
        ("check", "m.onnx", "schedule.json", "--costs", "costs.json"),
        ("show", "m.onnx", "--costs", "costs.json"),
    ),
}


@dataclass(frozen=True, slots=True)
class Seed:
    """A valid model, as bytes, and whether it has the dimension N."""

    content: bytes
    has_batch: bool


@dataclass(frozen=True, slots=True)
class Case:
    """A damaged file and the command that reads it."""

    name: str
    content: bytes
    arguments: tuple[str, ...]


def main() -> None:
    """Damage, run, count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--through-command", type=int, default=300)
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
            n_bugs += count_endings(title, run(islice(cases, count), valid), kept)
    sys.exit(1 if n_bugs else 0)


def load_seeds() -> tuple[list[Seed], list[Seed]]:
    """Return small valid models and larger ones."""
    texts = [f'<ir_version: 9, opset_import: ["" : 18]> {text}' for text in SMALL]
    small = [
        Seed(onnx.parser.parse_model(text).SerializeToString(), "[N" in text) for text in texts
    ]
    paths = sorted(GRAPHS.glob("*-tiny-bN.onnx"))
    return small, [Seed(path.read_bytes(), has_batch=True) for path in paths]


def make_documents() -> dict[str, bytes]:
    """Return, by name, a valid model and documents about it, made by the commands themselves."""
    text = f'<ir_version: 9, opset_import: ["" : 18]> {TRAINING}'
    Path("m.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())
    dims = ("--dim", "N=64")
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        for arguments in (
            ("solve", "m.onnx", "--budget", "90%", *FLOPS, *AS_IS, *dims, "-o", "schedule.json"),
            ("export", "m.onnx", "-o", "problem.json", *FLOPS, "--optimize", "none", *dims),
            ("profile", "m.onnx", "-o", "costs.json", "--optimize", "none", *dims),
            ("solve", "problem.json", "--budget", "90%", "-o", "problem-schedule.json"),
        ):
            if code := run_here(arguments):
                sys.exit(f"a valid file ended with {code}: {arguments}")
    return {name: Path(name).read_bytes() for name in ("m.onnx", *DOCUMENT_COMMANDS)}


def make_cases(
    key: str, valid: dict[str, bytes], seeds: tuple[list[Seed], list[Seed]]
) -> Iterator[Case]:
    """Yield damaged inputs, each of its own seed."""
    number = 0
    while True:
        chance = random.Random(f"{key}-{number}")
        is_model = number % 2 == 0
        make = make_model_case(seeds, chance) if is_model else make_document_case(valid, chance)
        yield Case(f"{key}-{number}", *make)
        number += 1


def make_model_case(
    seeds: tuple[list[Seed], list[Seed]], chance: random.Random
) -> tuple[bytes, tuple[str, ...]]:
    """Return a damaged model and a command."""
    seed = chance.choice(seeds[chance.random() < 0.1])
    change = mutate_structure if chance.random() < 0.6 else mutate_bytes
    is_default = chance.random() < DEFAULT_SHARE
    command = chance.choice(DEFAULT_COMMANDS if is_default else MODEL_COMMANDS)
    has_dims = seed.has_batch and "--list-dims" not in command and chance.random() < 0.9
    return change(seed.content, chance), (*command, *(("--dim", "N=64") if has_dims else ()))


def make_document_case(
    valid: dict[str, bytes], chance: random.Random
) -> tuple[bytes, tuple[str, ...]]:
    """Return a damaged document and a command."""
    name = chance.choice(tuple(DOCUMENT_COMMANDS))
    command = chance.choice(DOCUMENT_COMMANDS[name])
    has_dims = name == "costs.json" and command[0] != "check"
    content = mutate_document(valid[name], chance)
    return content, (*command, *(("--dim", "N=64") if has_dims else ()))


def place(case: Case, valid: dict[str, bytes]) -> None:
    """Write the damaged file of ``case``, and valid ones beside it."""
    is_model = not any(name in case.arguments for name in DOCUMENT_COMMANDS)
    damaged = "m.onnx" if is_model else find_damaged(case)
    for name, content in valid.items():
        Path(name).write_bytes(case.content if name == damaged else content)


def find_damaged(case: Case) -> str:
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
    n_bugs = 0
    for case, verdict in outcomes:
        endings[verdict.ending] += 1
        if verdict.is_bug:
            n_bugs += 1
            kept.mkdir(parents=True, exist_ok=True)
            (kept / case.name).write_bytes(case.content)
            print(f"{case.name}: {verdict.ending}: {' '.join(case.arguments)}", flush=True)
    took_s = time.monotonic() - began_s
    print(title, sum(endings.values()), dict(endings.most_common()), f"{took_s:.0f} s", flush=True)
    return n_bugs


if __name__ == "__main__":
    main()
