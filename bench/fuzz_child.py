"""Commands in forks of this process, with limits of time and memory. Used by `bench/fuzz.py`."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from checkmate.cli import main as command_line

DOCUMENTED = (0, 2, 3, 4, 5, 6, 7)
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
    code = run_here(arguments)
    signal.alarm(0)
    sys.stdout.flush()
    sys.stderr.flush()
    return judge(code, _ERRORS.read_text(errors="replace")).ending


def judge_line(ending: str) -> Verdict:
    """Return the verdict that a child wrote."""
    return Verdict(ending, is_bug=ending not in {f"exit {code}" for code in DOCUMENTED})


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
