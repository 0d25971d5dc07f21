"""Rows of the report of `bench/gpu_check.py`: what was measured, what is allowed, what holds."""

from __future__ import annotations

import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from types import FrameType
from typing import Literal

Figures = dict[str, object]
Verdict = Literal["pass", "fail", "reported"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was measured, beside what is allowed."""

    what: str
    measured: object
    allowed: str
    verdict: Verdict
    """``reported``: it is not judged here."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What a step found."""

    figures: Figures
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()
    """Lines that a command wrote for people."""
    errors: tuple[str, ...] = ()
    """Why the step failed, beside its checks."""


class LateError(BaseException):
    """The time of a step is over; no handler of a step's own errors may catch it."""


def judge(
    what: str, measured: object, allowed: str, *, holds: bool, is_judged: bool = True
) -> Check:
    """Return the verdict on ``measured``, which ``holds`` or not."""
    return Check(
        what, measured, allowed, ("pass" if holds else "fail") if is_judged else "reported"
    )


def judge_ratio(
    what: str, numerator: object, denominator: object, share: float, *, is_judged: bool = True
) -> Check:
    """Return whether a ratio is one to within ``share``; what was not measured is reported."""
    allowed = f"{1 - share:g} to {1 + share:g}"
    if not isinstance(numerator, int) or not isinstance(denominator, int) or not denominator:
        return Check(what, None, allowed, "reported")
    ratio = numerator / denominator
    holds = abs(ratio - 1) <= share
    return judge(what, round(ratio, 4), allowed, holds=holds, is_judged=is_judged)


def judge_most(what: str, measured: object, most: int, *, is_judged: bool = True) -> Check:
    """Return whether ``measured`` is at most ``most``; what was not measured is reported."""
    allowed = f"at most {most}"
    if not isinstance(measured, int):
        return Check(what, None, allowed, "reported")
    return judge(what, measured, allowed, holds=measured <= most, is_judged=is_judged)


@dataclass(slots=True)
class Report:
    """All rows; no step takes more time than is left."""

    total_s: float
    step_s: float
    """The most for one step, so that one that hangs does not take the time of all others."""
    start_s: float = field(default_factory=time.monotonic)
    rows: list[Figures] = field(default_factory=list)
    skipped: list[Figures] = field(default_factory=list)
    """Steps that the time, or what a step before them did not make, left out."""

    @property
    def passed(self) -> bool | None:
        """True when every check holds, False when one does not; None: steps were left out."""
        if any(row["passed"] is False for row in self.rows):
            return False
        return None if self.skipped or not self.rows else True

    @property
    def exit_code(self) -> int:
        """0: passed; 1: failed; 3: nothing failed, and not everything was tried."""
        return {True: 0, False: 1, None: 3}[self.passed]

    def do(self, graph: str, step: str, work: Callable[[], Findings]) -> None:
        """Add the row of ``step``, whatever becomes of it."""
        start_s = time.monotonic()
        left_s = min(self.step_s, self.start_s + self.total_s - start_s)
        row: Figures = {"graph": graph, "step": step}
        if left_s <= 0:
            self.skip(graph, step, "no time was left")
            return
        try:
            with _ending_after(left_s):
                row |= _describe(work())
        except LateError:
            self.skip(graph, step, f"not done within {left_s:.0f} s")
            row |= {"passed": None, "errors": [f"cut off after {left_s:.0f} s"]}
        except Exception as error:  # one step's failure must not hide what the others find
            traceback.print_exc()
            row |= {"passed": False, "errors": [f"{type(error).__name__}: {error}"]}
        row["seconds"] = round(time.monotonic() - start_s, 1)
        self.rows.append(row)
        _print_row(row)

    def skip(self, graph: str, step: str, why: str) -> None:
        """Add a step that is not done."""
        self.skipped.append({"graph": graph, "step": step, "why": why})
        print(f"{graph} {step}: SKIPPED, {why}", file=sys.stderr, flush=True)


def _describe(found: Findings) -> Figures:
    """Return ``found`` as it stands in the report."""
    has_failed = any(check.verdict == "fail" for check in found.checks)
    row: Figures = {"passed": not has_failed and not found.errors}
    row["checks"] = [asdict(check) for check in found.checks]
    row["figures"] = found.figures
    lines: dict[str, Sequence[str]] = {"notes": found.notes, "errors": found.errors}
    return row | {name: list(texts) for name, texts in lines.items() if texts}


def _print_row(row: Figures) -> None:
    result = {True: "passed", False: "FAILED", None: "CUT OFF"}[row["passed"]]  # type: ignore[index]
    print(
        f"{row['graph']} {row['step']}: {result}, {row['seconds']} s", file=sys.stderr, flush=True
    )
    checks = row.get("checks", [])
    assert isinstance(checks, list)
    for check in checks:
        if check["verdict"] == "fail":
            line = f"  {check['what']}: {check['measured']}, allowed is {check['allowed']}"
            print(line, file=sys.stderr, flush=True)


@contextmanager
def _ending_after(seconds: float) -> Iterator[None]:
    """Raise `LateError` within the context when ``seconds`` have passed."""

    def raise_late(_number: int, _frame: FrameType | None) -> None:
        raise LateError

    before = signal.signal(signal.SIGALRM, raise_late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
