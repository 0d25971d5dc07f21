"""Every error that a user can meet, and the exit code each one owns.

A message names the thing, says what is wrong and gives both numbers; a hint says what to do
next. Only ``cli/main.py`` turns an error into the end of the program.
"""

from __future__ import annotations

from typing import ClassVar


class CheckmateError(Exception):
    """Something went wrong; the class says whose fault it is, the exit code says it to scripts."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InternalError(CheckmateError):
    """A result of ours did not survive its own verification; nothing was written."""


class UsageError(CheckmateError):
    """An option has a value that cannot be meant."""

    exit_code = 2


class InputError(CheckmateError):
    """A file cannot be read, or says something that cannot be."""

    exit_code = 3


class GraphError(InputError):
    """A graph contradicts itself: a cycle, two producers of one tensor, a missing tensor."""


class ScheduleError(InputError):
    """A schedule cannot run: it reads what is not in memory, or frees what is not there."""


class OutputError(InputError):
    """A file cannot be written."""


class InfeasibleError(CheckmateError):
    """It is proved that no schedule of this op order fits."""

    exit_code = 4


class NotFoundError(CheckmateError):
    """Nothing that fits was found, and nothing was proved for all schedules of the order."""

    exit_code = 5


class NoneInSpaceError(NotFoundError):
    """It is proved that nothing in a named space fits, which proves nothing outside of it."""


class RunError(CheckmateError):
    """The solver, the device or onnxruntime failed."""

    exit_code = 6


class SolverError(RunError):
    """HiGHS failed, or claimed what cannot be."""


class OutOfMemoryError(RunError):
    """A run needs more memory than the device, or its limit, has."""


class DeviceError(RunError):
    """The asked-for execution provider is not usable here."""


class MismatchError(CheckmateError):
    """``check``: above its budget, or the run did not match the plan."""

    exit_code = 7


class InterruptError(CheckmateError):
    """Interrupted by the user with nothing in hand."""

    exit_code = 130


class AbortError(CheckmateError):
    """Interrupted by the user a second time: what is in hand is not wanted either."""

    exit_code = 130
