"""A solve in a process of its own, so that nothing HiGHS does can harm ours."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import checkmate
from checkmate.errors import AbortError, SolverError
from checkmate.milp.model import FloatArray, Program
from checkmate.plan import SolverInfo
from checkmate.solver.files import read_incumbent, read_result, write_job
from checkmate.solver.result import SEED, THREADS, MilpResult, Settings

_GRACE_S = 1.0
"""How long a worker may take to end after its time, and again after it was asked to stop."""

Ending = Literal["alone", "limit", "interrupted"]
"""Why a worker ended: by itself; out of time; because the user interrupted."""


def solve_in_worker(
    program: Program, settings: Settings, start: FloatArray | None = None
) -> MilpResult:
    """Return what HiGHS finds in a process of its own.

    A Ctrl-C meanwhile ends the solve, not the program: the result is "interrupted", with the best
    solution so far. A worker that does not stop in time is killed, and its best solution so far
    is kept. Raises `AbortError` at a second Ctrl-C, `SolverError` when HiGHS fails or its process
    ends without an answer.
    """
    with tempfile.TemporaryDirectory(prefix="checkmate-") as name:
        folder = Path(name)
        write_job(folder, program, settings, start)
        with (folder / "messages.txt").open("wb") as messages:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "checkmate.solver.worker", name],
                stdin=subprocess.PIPE,
                stdout=messages,
                stderr=messages,
                env=_make_environment(),
                start_new_session=True,  # a Ctrl-C at the terminal is for us alone
            )
        ending = _await_end(process, settings.time_s)
        return _collect(folder, process.returncode, ending)


def describe_solver() -> SolverInfo:
    """Return the solver that workers run."""
    return SolverInfo("HiGHS", version("highspy"), THREADS, SEED)


def _make_environment() -> dict[str, str]:
    """Return our environment, in which the worker imports the package that we run from."""
    paths = [str(Path(checkmate.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _await_end(process: subprocess.Popen[bytes], time_s: float | None) -> Ending:
    """Wait until the worker has ended, asking it to stop and killing it when it must."""
    ending: Ending = "alone"
    try:
        process.wait(None if time_s is None else time_s + _GRACE_S)
    except subprocess.TimeoutExpired:
        ending = "limit"
    except KeyboardInterrupt:
        ending = "interrupted"
    try:
        process.communicate(timeout=_GRACE_S)  # closes its standard input, which asks it to stop
    except subprocess.TimeoutExpired:
        pass
    except KeyboardInterrupt:
        if ending == "interrupted":
            raise AbortError("interrupted twice: nothing is kept") from None
        ending = "interrupted"
    finally:
        process.kill()
        process.wait()
    return ending


def _collect(folder: Path, returncode: int, ending: Ending) -> MilpResult:
    result = read_result(folder)
    if result is not None:
        # A solve that was finished when the user interrupted is interrupted all the same: what
        # comes after it must know.
        if ending == "interrupted":
            return replace(result, status="interrupted")
        was_late = ending == "limit" and result.status == "interrupted"
        return replace(result, status="limit") if was_late else result
    if ending == "alone":
        raise SolverError(f"the HiGHS process ended with code {returncode}{_last_line(folder)}")
    incumbent = read_incumbent(folder)
    if incumbent is None:
        return MilpResult(ending, None, math.inf, -math.inf, 0, version("highspy"))
    return replace(incumbent, status=ending, version=version("highspy"))


def _last_line(folder: Path) -> str:
    text = (folder / "messages.txt").read_text(encoding="utf-8", errors="replace")
    lines = text[-1000:].strip().splitlines()
    return f": {lines[-1]}" if lines else ""
