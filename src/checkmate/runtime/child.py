"""A child process: reads tasks from standard input, answers on standard output.

``python -m checkmate.runtime.child FOLDER [MEMORY_LIMIT]``; the folder is for its scratch files.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from pathlib import Path

from checkmate.runtime.protocol import (
    OptimizeTask,
    PlaceTask,
    ProbeTask,
    RaceTask,
    Reply,
    RunTask,
    Task,
    TimeTask,
    WatchTask,
    read_task,
)

_MEMORY_SIGNS = (
    "Available memory of",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "Cannot allocate memory",
    "Failed to allocate memory",
    "bad_alloc",
    "failed to map segment",
    "out of memory",
    # As cuBLAS puts its status in words.
    "the resource allocation failed",
)
"""What onnxruntime, the C++ library, the loader, CUDA, cuBLAS and cuDNN say of no memory."""


def main() -> None:
    """Answer tasks until standard input ends."""
    # Libraries print to standard output, which carries the answers: they keep the number 1, the
    # answers get another.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    # The parent hears the user's Ctrl-C and decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if len(sys.argv) > 2:
        _limit_memory(int(sys.argv[2]))
    answer = _Answerer(Path(sys.argv[1]))
    for line in sys.stdin:
        json.dump(answer(read_task(line)), replies)
        replies.write("\n")
        replies.flush()


class _Answerer:
    """Does tasks; a failure is an answer too."""

    def __init__(self, folder: Path) -> None:
        # A library of hundreds of megabytes: not imported before it is needed, nor in a parent.
        from checkmate.runtime.timing import Stopwatch  # noqa: PLC0415

        self._folder = folder
        self._stopwatch = Stopwatch(folder)

    def __call__(self, task: Task) -> Reply:
        try:
            return self._answer(task)
        except Exception as error:  # whatever onnxruntime raises has no class of its own
            kind = "memory" if _is_out_of_memory(error) else type(error).__name__
            return {"error": kind, "message": str(error) or kind}

    def _answer(self, task: Task) -> Reply:
        from checkmate.runtime.optimizing import optimize  # noqa: PLC0415
        from checkmate.runtime.placing import place  # noqa: PLC0415
        from checkmate.runtime.probing import probe  # noqa: PLC0415
        from checkmate.runtime.racing import race  # noqa: PLC0415
        from checkmate.runtime.running import run  # noqa: PLC0415
        from checkmate.runtime.watching import watch  # noqa: PLC0415

        match task:
            case RunTask():
                reply = run(task, self._folder)
            case TimeTask():
                reply = self._stopwatch(task)
            case WatchTask():
                reply = watch(task, self._folder)
            case RaceTask():
                reply = race(task)
            case PlaceTask():
                reply = place(task)
            case OptimizeTask():
                reply = optimize(task)
            case ProbeTask():
                reply = probe(task)
        return reply


def _is_out_of_memory(error: Exception) -> bool:
    text = str(error)
    return isinstance(error, MemoryError) or any(sign in text for sign in _MEMORY_SIGNS)


def _limit_memory(limit_nbytes: int) -> None:
    """Let the data of this process grow by no more than ``limit_nbytes`` from here."""
    import onnxruntime  # noqa: F401, PLC0415  # what it loads is not the run's

    in_use_pages = int(Path("/proc/self/statm").read_text().split()[5])
    limit = in_use_pages * resource.getpagesize() + limit_nbytes
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


if __name__ == "__main__":
    main()
