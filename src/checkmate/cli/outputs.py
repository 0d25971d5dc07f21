"""Where a command writes, checked before any work is done."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from checkmate.errors import UsageError
from checkmate.files import check_writable


def check_outputs(outputs: Mapping[str, Path], inputs: Iterable[Path]) -> None:
    """Refuse outputs that cannot be written, that are one file, or that are an input.

    ``outputs`` are named for messages. Raises `UsageError` or `OutputError`.
    """
    taken = {_identify(path): f"the input {str(path)!r}" for path in inputs}
    for name, path in outputs.items():
        place = _identify(path)
        if place in taken:
            raise UsageError(
                f"{name} {str(path)!r} is {taken[place]}", hint="write to another file"
            )
        taken[place] = f"also the {name}"
        check_writable(path)


def _identify(path: Path) -> str:
    """Return what is equal for two paths of one file, as far as links can be followed."""
    return os.path.realpath(path)
