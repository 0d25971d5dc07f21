"""Runs in an arena that cannot grow past a limit: they complete, or onnxruntime says where not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from checkmate.errors import OutOfMemoryError
from checkmate.runtime.protocol import RunTask, Settings, TensorSpec
from checkmate.runtime.worker import Worker

N_RUNS = 3
"""In a row, in one session."""


class LimitedRuns:
    """A child process that tries limits; a context."""

    def __init__(self, specs: Sequence[TensorSpec], settings: Settings) -> None:
        self._specs = tuple(specs)
        self._settings = settings
        self._worker = Worker()

    def __enter__(self) -> Self:
        self._worker.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._worker.__exit__(kind, error, at)

    def find_refusal(self, model: Path, settings: Settings) -> str | None:
        """Return what onnxruntime said when ``model`` ran out of the arena of ``settings``.

        None: a session completed `N_RUNS` runs; the outputs of one were let go of before the next.
        """
        task = RunTask(
            str(model.absolute()),
            settings,
            feeds="",
            specs=self._specs,
            seed=0,
            outputs="",
            n_runs=0,
            # One run warms up.
            n_timed_runs=N_RUNS - 1,
            max_timed_ns=2**62,
            meter="none",
        )
        try:
            self._worker.ask(task)
        except OutOfMemoryError as error:
            return error.message
        return None

    def find_smallest(self, model: Path, known_nbytes: int, lower_nbytes: int) -> int | None:
        """Return the smallest limit found in which ``model`` completes, to one part in a hundred.

        ``known_nbytes`` does not work, nor does anything below ``lower_nbytes``. None: nothing up
        to twice these works.
        """
        low = max(known_nbytes, lower_nbytes - 1)
        high, step = low, max(1, low // 32)
        while self.find_refusal(model, self._limit(high)) is not None:
            if high > 2 * low:
                return None
            high, step = high + step, 2 * step
        low = max(low, high - step // 2)
        while high - low > high // 100 + 1:
            middle = (low + high) // 2
            if self.find_refusal(model, self._limit(middle)) is None:
                high = middle
            else:
                low = middle
        return high

    def _limit(self, nbytes: int) -> Settings:
        return replace(self._settings, arena_limit_nbytes=nbytes)
