"""Parent side of a child process that has onnxruntime."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import checkmate
from checkmate.errors import OutOfMemoryError, RunError
from checkmate.runtime.protocol import Reply, Task, write_task
from checkmate.units import format_nbytes

_MEMORY_HINT = "free memory on this machine, or use a smaller batch size or budget"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a child may take."""

    timeout_s: float | None = None
    """The longest that one task may take; None: no limit."""
    memory_nbytes: int | None = None
    """The most memory beside what onnxruntime itself loads; None: what the machine has."""


class CrashError(RunError):
    """The child died of a task, other than by want of memory."""


class MeterError(RunError):
    """The allocations of this onnxruntime cannot be counted."""


class Worker:
    """A child process that does tasks one by one; a context, at whose end the child ends too.

    After a crash or a timeout the next task starts a new child.
    """

    def __init__(
        self, limits: Limits | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self._limits = limits or Limits()
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[str] | None = None

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="checkmate-")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._end()
        self._folder.cleanup()

    @property
    def folder(self) -> Path:
        """A folder that lasts as long as this worker."""
        return Path(self._folder.name)

    def ask(self, task: Task) -> Reply:
        """Return the answer to ``task``.

        Raises `OutOfMemoryError` when it needs more memory than there is, and `RunError` when
        onnxruntime refuses it, takes too long or dies of it.
        """
        try:
            reply = self._exchange(write_task(task))
        except BaseException:
            # Also on Ctrl-C: a child that is busy would answer the next question with this task.
            self._end()
            raise
        if "error" not in reply:
            return reply
        message = _first_line(str(reply["message"]))
        if reply["error"] == "memory":
            raise OutOfMemoryError(_explain_shortage(message), hint=_MEMORY_HINT)
        if reply["error"] == "CApiError":
            raise MeterError(f"onnxruntime's allocations cannot be counted: {message}")
        # A provider's constructor says first, at length, where in the source it failed.
        shown = shorten_failure(message) if message.startswith("/") else message
        raise RunError(f"onnxruntime failed: {shown}")

    def read_errors(self) -> str:
        """Return what the child has written to its standard error."""
        if self._errors is None:
            return ""
        self._errors.seek(0)
        return self._errors.read()

    def _exchange(self, line: str) -> Reply:
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(line + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            raise self._explain_death(process) from None
        if not select.select([process.stdout], [], [], self._limits.timeout_s)[0]:
            raise RunError(
                f"onnxruntime did not finish within {self._limits.timeout_s:g} s",
                hint="allow more time, or use a smaller batch size",
            )
        answer = process.stdout.readline()
        if not answer.endswith("\n"):
            raise self._explain_death(process)
        reply: Reply = json.loads(answer)
        return reply

    def _start(self) -> subprocess.Popen[str]:
        # Without -P the working directory would come first, and any onnx.py in it.
        command = [sys.executable, "-P", "-m", "checkmate.runtime.child", str(self.folder)]
        if self._limits.memory_nbytes is not None:
            command.append(str(self._limits.memory_nbytes))
        source = str(Path(checkmate.__file__).parent.parent)
        paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | self._environment
        self._errors = (self.folder / "errors.txt").open("w+", errors="replace")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
        )
        return self._process

    def _explain_death(self, process: subprocess.Popen[str]) -> RunError:
        code = process.wait()
        if code == -signal.SIGKILL:
            limit = self._limits.memory_nbytes
            most = "" if limit is None else f" (limit {format_nbytes(limit)})"
            return OutOfMemoryError(
                f"the system killed onnxruntime, as it does when memory runs out{most}",
                hint=_MEMORY_HINT,
            )
        how = f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        last = (self.read_errors().strip().splitlines() or ["it said nothing"])[-1]
        return CrashError(f"onnxruntime {how}: {last}")

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    _close(stream)
        if self._errors is not None:
            self._errors.close()
            self._errors = None


def _close(stream: IO[str]) -> None:
    try:
        stream.close()
    except BrokenPipeError:  # an unsent line for a child that is gone
        return


def _explain_shortage(message: str) -> str:
    """Return an arena's refusal in few words, and any other message as it is."""
    found = re.search(
        r"Available memory of (\d+) is smaller than requested bytes of (\d+)", message
    )
    if found is None:
        return f"out of memory: {message}"
    node = re.search(r"Name:'([^']*)'", message)
    who = f"op {node[1]!r} asks" if node else "onnxruntime asks"
    left_nbytes = int(found[1])
    # An arena of one region cannot grow, whatever lies free in it.
    where = (
        f"where {left_nbytes:,} B are left" if left_nbytes else "more than the arena has together"
    )
    return f"out of memory: {who} for {int(found[2]):,} B, {where}"


def shorten_failure(message: str) -> str:
    """Return what CUDA or a kernel said, out of ``message``; else its first line."""
    line = _first_line(message)
    # Before it stands where in onnxruntime's source it was said, after it on which device.
    found = re.search(r"\w+ failure -?\d+: .*?(?= ;|$)", line)
    return found[0] if found else line.rpartition("Status Message: ")[2]


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else "no message"
