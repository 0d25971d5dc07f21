"""Files written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from checkmate.errors import OutputError


def write_files(contents: Mapping[Path, bytes]) -> None:
    """Write every file, or none: all to temporary files beside their places, then renamed.

    Raises `OutputError` when a file cannot be written; nothing is left behind.
    """
    temporary: dict[Path, Path] = {}
    try:
        for path, content in contents.items():
            temporary[path] = _write_beside(path, content)
        for path in contents:
            temporary.pop(path).replace(path)
    finally:
        for left in temporary.values():
            left.unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """Raise `OutputError` when ``path`` cannot be written; long work is not begun then."""
    _write_beside(path, b"").unlink()


def _write_beside(path: Path, content: bytes) -> Path:
    """Write ``content`` to a new file beside ``path``, with the rights of a plain file."""
    if path.is_dir():
        raise OutputError(f"cannot write {str(path)!r}: it is a folder")
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise OutputError(f"cannot write {str(path)!r}: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(name).chmod(0o666 & ~_get_umask())
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise OutputError(f"cannot write {str(path)!r}: {error.strerror}") from error
    return Path(name)


def _get_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
