"""A search as people see it while it runs: one line on the terminal, and what failed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from rich.console import Console
from rich.live import Live
from rich.text import Text

from checkmate.cli.report import echo_note
from checkmate.search.progress import Listener, Progress
from checkmate.units import format_ratio

_PER_SECOND = 8


@contextlib.contextmanager
def watch_search() -> Iterator[Listener]:
    """Yield what to tell of a search; where standard error is a terminal, it shows a line."""
    console = Console(stderr=True, highlight=False, markup=False)
    view = _View(console)
    if not console.is_terminal:
        yield view
        return
    with Live(
        console=console, get_renderable=view.render, refresh_per_second=_PER_SECOND, transient=True
    ):
        yield view


class _View:
    """A listener that remembers what it was told last."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began_s = time.monotonic()
        self._last: Progress | None = None

    def tell(self, progress: Progress) -> None:
        """Remember it until the line is drawn again."""
        self._last = progress

    def warn(self, text: str) -> None:
        """Print it above the line."""
        if self._console.is_terminal:
            self._console.print(f"note: {text}")
        else:
            echo_note(f"note: {text}")

    def render(self) -> Text:
        """Return the line; rich asks for it several times a second."""
        elapsed = f"{time.monotonic() - self._began_s:6.1f} s"
        described = "" if self._last is None else describe_progress(self._last)
        return Text(f"{elapsed}  {described}", no_wrap=True, overflow="ellipsis")


def describe_progress(progress: Progress) -> str:
    """Return phase, overhead, bound and gap in one line."""
    bound_ns, time_ns = progress.bound_ns, progress.time_ns
    bound = f"bound {format_ratio(bound_ns, progress.ideal_ns)}"
    if time_ns is None:
        return f"{progress.phase}: nothing yet, {bound}; Ctrl-C ends"
    overhead = f"overhead {format_ratio(time_ns, progress.ideal_ns)}"
    gap = format_ratio(max(time_ns, bound_ns), bound_ns).lstrip("+")
    return f"{progress.phase}: {overhead}, {bound}, gap {gap}; Ctrl-C takes it"
