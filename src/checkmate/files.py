"""Files written whole or not at all."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from checkmate.errors import OutputError


def write_files(contents: Mapping[Path, bytes], copies: Mapping[Path, Path] | None = None) -> None:
    """Write every file, or none: all to temporary files beside their places, then renamed.

    ``copies`` are files that come from another, with its times; their folders are made. Raises
    `OutputError` when a file cannot be written; nothing is left behind, folders apart.
    """
    temporary: dict[Path, Path] = {}
    try:
        for path, source in (copies or {}).items():
            target = _follow(path)
            temporary[target] = _copy_beside(target, source)
        for path, content in contents.items():
            if _is_special(path):
                _write_through(path, content)
            else:
                target = _follow(path)
                temporary[target] = _write_beside(target, content)
        for target in tuple(temporary):
            temporary.pop(target).replace(target)
    finally:
        for left in temporary.values():
            left.unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """Raise `OutputError` when ``path`` cannot be written; long work is not begun then."""
    if not _is_special(path):
        _write_beside(_follow(path), b"").unlink()


def _is_special(path: Path) -> bool:
    """Return whether ``path`` is a device, a pipe or the like, which is written as it is."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _follow(path: Path) -> Path:
    """Return the file that ``path`` links to, or itself."""
    try:
        return path.resolve() if path.is_symlink() else path
    except (OSError, RuntimeError) as error:
        why = error.strerror if isinstance(error, OSError) else "its links do not end"
        raise OutputError(f"cannot write {str(path)!r}: {why}") from error


def _write_through(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise OutputError(f"cannot write {str(path)!r}: {error.strerror}") from error


def _write_beside(path: Path, content: bytes) -> Path:
    """Write ``content`` to a new file beside ``path``, with the rights of a plain file."""
    try:
        if path.is_dir():
            raise OutputError(f"cannot write {str(path)!r}: it is a folder")
        descriptor, name = tempfile.mkstemp(prefix=".checkmate-", dir=path.parent)
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


def _copy_beside(path: Path, source: Path) -> Path:
    """Copy ``source`` to a new file beside ``path``."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write {str(path)!r}: {error.strerror}") from error
    copy = _write_beside(path, b"")
    try:
        shutil.copyfile(source, copy)
        shutil.copystat(source, copy)
    except OSError as error:
        copy.unlink(missing_ok=True)
        raise OutputError(
            f"cannot copy {str(source)!r} to {str(path)!r}: {error.strerror}"
        ) from error
    return copy


def _get_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
