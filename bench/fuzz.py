"""Damaged models through the commands: only documented endings, no traceback, no hang.

    python bench/fuzz.py [--inputs 20000] [--through-command 300] [--seed 0] [--keep FOLDER]

Half of the inputs are faults of structure (`bench/mutations.py`), half of bytes, in valid graphs:
the tiny ones of `graphs/` and small ones with control flow, random ops and odd types. Each is
solved or shown in a forked child with 1 GiB of data and 10 seconds of processor time; some go
through the real command. Prints the count of each exit code, and every input that ended
otherwise: by a bug (exit 1), a hang, a signal or a shortage of memory. Those are kept in the
folder of ``--keep``. Ends with 1 when there are any.
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from checkmate.cli import main as command_line
from mutations import mutate_bytes, mutate_structure

GRAPHS = Path(__file__).parent.parent / "graphs"
DOCUMENTED = (0, 2, 3, 4, 5, 6)
DATA_NBYTES = 2**30
PROCESSOR_S = 10
COMMANDS = (
    ("solve", "--budget", "60%", "--costs", "flops", "--strategy", "greedy", "--json"),
    ("solve", "--budget", "90%", "--costs", "flops", "--time-limit", "2s"),
    ("show",),
)
SMALL = (
    """g (float[N, 8] x, bool c) => (float[N, 8] y, float l) {
        a = Relu(x)
        b = If (c) <
            then_branch = t () => (float[N, 8] p) { p = Exp(a) },
            else_branch = e () => (float[N, 8] q) { q = Neg(a) }
        >
        y = Add(a, b)
        l = ReduceSum <keepdims = 0> (y)
    }""",
    """g (float16[4, 8] x, int64[3] i) => (float16[3, 8] y, float16[4, 8] z, bool[3, 8] m)
      <float16[8] w = {1, 2, 3, 4, 5, 6, 7, 8}, float ratio = {0.5}, bool yes = {1}> {
        a = Mul(x, w)
        y = Gather(a, i)
        z, k = Dropout(a, ratio, yes)
        m = Cast <to = 9> (y)
    }""",
    """g (float[2, 3, 8, 8] x, float[4, 3, 3, 3] w, float[4] s, float[4] b, float[4] m, float[4] v)
      => (float[2, 4, 3, 3] y, float[4] mean, float[4] var) {
        c = Conv <pads = [1, 1, 1, 1]> (x, w)
        n, mean, var = BatchNormalization <training_mode = 1> (c, s, b, m, v)
        p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (n)
        y = AveragePool <kernel_shape = [2, 2]> (p)
    }""",
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one input ended."""

    ending: str
    """``exit N``, or what else happened."""
    is_bug: bool


def main() -> None:
    """Damage, run, count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--through-command", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path("fuzz"))
    options = parser.parse_args()
    seeds = load_seeds()
    kept = options.keep.absolute()
    for name in {command[0] for command in COMMANDS}:
        importlib.import_module(f"checkmate.cli.{name}")
    n_whole = options.through_command
    n_bugs = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # Caches and outputs go where they are lost.
        os.environ["XDG_CACHE_HOME"] = name
        os.chdir(folder)
        for title, count, run in (
            ("forked", options.inputs, run_forked),
            ("command", n_whole, run_command),
        ):
            endings: Counter[str] = Counter()
            for number in range(count):
                chance = random.Random(f"{options.seed}-{title}-{number}")
                content = damage(chance.choice(seeds), chance)
                (folder / "model.onnx").write_bytes(content)
                verdict = run(["checkmate", *choose_command(chance)], folder)
                endings[verdict.ending] += 1
                if verdict.is_bug:
                    n_bugs += 1
                    keep(kept, f"{title}-{number}", content, verdict)
            print(title, count, dict(endings.most_common()), flush=True)
    sys.exit(1 if n_bugs else 0)


def load_seeds() -> list[bytes]:
    """Return valid models."""
    paths = sorted(GRAPHS.glob("*-tiny-bN.onnx"))
    texts = [f'<ir_version: 9, opset_import: ["" : 18]> {text}' for text in SMALL]
    small = [onnx.parser.parse_model(text).SerializeToString() for text in texts]
    # Small models are tried as often as all large ones together.
    return [path.read_bytes() for path in paths] + small * 2


def damage(content: bytes, chance: random.Random) -> bytes:
    """Return a damaged copy."""
    change = mutate_structure if chance.random() < 0.5 else mutate_bytes
    return change(content, chance)


def choose_command(chance: random.Random) -> list[str]:
    """Return a command on ``model.onnx``."""
    name, *options = chance.choice(COMMANDS)
    dims = ["--dim", "N=4"] if chance.random() < 0.8 else []
    return [name, "model.onnx", *options, *dims]


def run_forked(arguments: Sequence[str], folder: Path) -> Verdict:
    """Run in a fork of this process, which has everything imported."""
    errors = folder / "errors.txt"
    child = os.fork()
    if child == 0:
        _become_command(arguments, errors)
    _, status, _ = os.wait4(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return judge(code, errors.read_text(errors="replace"))


def _become_command(arguments: Sequence[str], errors: Path) -> None:
    """Run the command and end this process with its exit code."""
    with errors.open("w") as file, Path(os.devnull).open("w") as nothing:
        os.dup2(file.fileno(), 2)
        os.dup2(nothing.fileno(), 1)
        resource.setrlimit(resource.RLIMIT_DATA, (DATA_NBYTES, DATA_NBYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_S, PROCESSOR_S))
        sys.argv = list(arguments)
        code = 1
        try:
            command_line.main()
        except SystemExit as ending:
            code = ending.code if isinstance(ending.code, int) else 1
        finally:
            sys.stderr.flush()
            os._exit(code)


def run_command(arguments: Sequence[str], folder: Path) -> Verdict:
    """Run the command as a user does."""
    command = [sys.executable, "-m", *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=60, check=False
        )
    except subprocess.TimeoutExpired:
        return Verdict("hang", is_bug=True)
    return judge(done.returncode, done.stderr)


def judge(code: int, errors: str) -> Verdict:
    """Return whether an ending is a documented one."""
    if code == -signal.SIGXCPU:
        return Verdict("hang", is_bug=True)
    if "MemoryError" in errors or "bad_alloc" in errors:
        return Verdict("memory", is_bug=True)
    if "Traceback" in errors:
        return Verdict("traceback", is_bug=True)
    return Verdict(f"exit {code}", is_bug=code not in DOCUMENTED)


def keep(folder: Path, name: str, content: bytes, verdict: Verdict) -> None:
    """Keep an input that ended as none may."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}-{verdict.ending.replace(' ', '')}.onnx").write_bytes(content)
    print(f"{name}: {verdict.ending}", flush=True)


if __name__ == "__main__":
    main()
