"""A Ctrl-C that comes while a solver works, however fast the machine is."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")

_WORKING_S = 0.5
"""How long one worker has lived by then."""


def find_children() -> list[int]:
    """Return the processes that this one has begun and not yet waited for."""
    text = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
    return [int(word) for word in text.split()]


def interrupt_a_solver() -> Callable[[], None]:
    """Interrupt this process once one of its children works; what is returned calls that off."""
    is_over = threading.Event()
    read_children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text

    def watch() -> None:
        born: dict[str, float] = {}
        while not is_over.wait(0.02):
            now = time.monotonic()
            born = {pid: born.get(pid, now) for pid in read_children(encoding="ascii").split()}
            if any(now - began >= _WORKING_S for began in born.values()):
                os.kill(os.getpid(), signal.SIGINT)
                return

    threading.Thread(target=watch, daemon=True).start()
    return is_over.set
