"""The process in which HiGHS runs: ``python -m checkmate.solver.worker FOLDER``.

It solves the job in the folder and leaves the result there. Its standard input says when to
stop: when that is closed, by whoever started it or because that one died, it returns what it has.
A Ctrl-C is not for it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

from checkmate.errors import SolverError
from checkmate.milp.model import FloatArray
from checkmate.solver.files import read_job, write_failure, write_incumbent, write_result
from checkmate.solver.highs import solve_program
from checkmate.solver.result import MilpResult
from checkmate.solver.session import Watch

_MEMORY_SHARE = 0.8
"""Of the machine's memory: a solve that needs more fails alone."""


def main(folder: Path) -> None:
    """Solve the job in ``folder``; leave its result, or why there is none."""
    began_s = time.monotonic()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # HiGHS prints a banner when created, before it can be silenced, and standard output may be
    # carrying the schedule.
    os.dup2(2, 1)
    _limit_memory()
    stop = threading.Event()
    threading.Thread(target=_await_stop, args=(stop,), daemon=True).start()

    def keep(values: FloatArray, objective: float, bound: float) -> None:
        write_incumbent(folder, MilpResult("limit", values, objective, bound, 0, ""))

    try:
        program, settings, start = read_job(folder)
        if settings.time_s is not None:  # reading a large job takes a part of it
            left_s = max(0.0, settings.time_s - (time.monotonic() - began_s))
            settings = replace(settings, time_s=left_s)
        watch = Watch(on_incumbent=keep, is_stopped=stop.is_set)
        write_result(folder, solve_program(program, settings, start, watch))
    except SolverError as error:
        write_failure(folder, error.message)
    except MemoryError:
        write_failure(folder, "HiGHS ran out of memory")


def _await_stop(stop: threading.Event) -> None:
    # Not through sys.stdin: its lock, held by this thread, would keep Python from ending for 1 s.
    while os.read(0, 1024):
        pass
    stop.set()


def _limit_memory() -> None:
    machine_nbytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit_nbytes = int(machine_nbytes * _MEMORY_SHARE)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        limit_nbytes = min(limit_nbytes, hard)
    # Not every system lets the address space be limited.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (limit_nbytes, hard))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
