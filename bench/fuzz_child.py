"""Commands in forks of this process, with limits of time and memory. Used by `bench/fuzz.py`."""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from checkmate.cli import main as command_line
from checkmate.cli.options import parse_dims
from checkmate.errors import CheckmateError
from fuzz_runs import GOOD, compare_at_random, compare_written

DOCUMENTED = (0, 2, 3, 4, 5, 6, 7)
REWRITE = "rewrite"
"""In place of a command: rewrite a model at random and run it; its last argument is a seed."""
_WRITTEN = Path("m.scheduled.onnx")
_SOLVED = (Path("m.onnx"), Path("m.schedule.json"), _WRITTEN)
DATA_NBYTES = 2**30
PROCESSOR_S = 10
WALL_S = 60
"""A wait for a child of onnxruntime or HiGHS has no processor time."""
_ERRORS = Path("errors.txt")
_CODES = Path("codes.txt")

Start = Callable[[], Sequence[str]]
"""Places the files of one input; returns the arguments of its command."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one input ended."""

    ending: str
    """``exit N``, or what else happened."""
    is_bug: bool
    is_planned: bool = False
    """The file was read to the end and used, with exit 0."""


def run_here(arguments: Sequence[str]) -> int:
    """Run a command in this process; return its exit code."""
    sys.argv = ["checkmate", *arguments]
    try:
        command_line.main()
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else 1


def run_many(starts: Sequence[Start]) -> list[Verdict]:
    """Run commands one after the other in one child, to the first that ends the child."""
    _CODES.write_text("")
    child = os.fork()
    if child == 0:
        _run_all(starts)
    _, status, _ = os.wait4(child, 0)
    lines = _CODES.read_text().splitlines()
    verdicts = [judge_line(line) for line in lines]
    if len(verdicts) < len(starts):
        code = os.waitstatus_to_exitcode(status)
        verdicts.append(judge(code, _ERRORS.read_text(errors="replace")))
    return verdicts


def _run_all(starts: Sequence[Start]) -> None:
    """Run each command, note how it ended, and end this process."""
    try:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        resource.setrlimit(resource.RLIMIT_DATA, (DATA_NBYTES, DATA_NBYTES))
        with _CODES.open("a", buffering=1) as codes:
            for start in starts:
                arguments = start()
                codes.write(f"{_run_limited(arguments)}\n")
    finally:
        os._exit(0)


def _run_limited(arguments: Sequence[str]) -> str:
    """Run a command with its own limit of time; return its ending."""
    with _ERRORS.open("w") as errors:
        os.dup2(errors.fileno(), 2)
    own = resource.getrusage(resource.RUSAGE_SELF)
    limit_s = int(own.ru_utime + own.ru_stime) + PROCESSOR_S + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit_s, resource.RLIM_INFINITY))
    signal.alarm(WALL_S)
    if arguments[0] == REWRITE:
        ending = _rewrite(arguments)
        signal.alarm(0)
        return ending
    _WRITTEN.unlink(missing_ok=True)
    code = run_here(arguments)
    signal.alarm(0)
    sys.stdout.flush()
    sys.stderr.flush()
    ending = judge(code, _ERRORS.read_text(errors="replace")).ending
    return _check_written(arguments) if code == 0 and _WRITTEN.exists() else ending


def _rewrite(arguments: Sequence[str]) -> str:
    try:
        dims = parse_dims(arguments[4::2])
        return compare_at_random(Path(arguments[1]), dims, random.Random(arguments[2]))
    except CheckmateError as error:
        return f"exit {error.exit_code}"


def _check_written(arguments: Sequence[str]) -> str:
    """Return how it ends that what was solved is checked and run."""
    if code := run_here(("check", "m.onnx", "m.schedule.json")):
        return f"exit 0, but check ends with {code}"
    if "none" not in arguments:
        # What was optimized is no longer what is in the file.
        return "exit 0"
    dims = parse_dims(after for before, after in pairwise(arguments) if before == "--dim")
    return f"exit 0, {compare_written(*_SOLVED, dims)}"


def judge_line(ending: str) -> Verdict:
    """Return the verdict that a child wrote."""
    numbers = ending.removeprefix("exit 0, ")
    is_good = numbers in GOOD or ending in {f"exit {code}" for code in DOCUMENTED}
    return Verdict(ending, not is_good, is_planned=numbers in GOOD or ending == "exit 0")


def judge(code: int, errors: str) -> Verdict:
    """Return whether an ending is a documented one."""
    if code in (-signal.SIGXCPU, -signal.SIGALRM):
        return Verdict("hang", is_bug=True)
    if "MemoryError" in errors or "bad_alloc" in errors:
        return Verdict("memory", is_bug=True)
    if "Traceback" in errors:
        last = errors.rstrip().splitlines()[-1] if code != 1 else errors[:0]
        return Verdict(f"traceback {last}".rstrip(), is_bug=True)
    return judge_line(f"exit {code}")
