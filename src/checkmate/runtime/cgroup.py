"""The most memory that a container lets its processes have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath


def find_limit_nbytes(root: Path = Path("/")) -> int | None:
    """Return the smallest memory limit of this process's control groups; None: there is none.

    Both versions of Linux's control groups are read; a limit holds for all groups below it.
    ``root`` is the root of the file system.
    """
    limits = (_read_limit(path) for path in _list_limit_files(root))
    return min((nbytes for nbytes in limits if nbytes is not None), default=None)


def _list_limit_files(root: Path) -> Iterator[Path]:
    """Yield the files that may hold a limit, those of the groups above included."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        # Within a container its own group is the root of what is mounted, whatever its name.
        folder, name = ("memory", "memory.limit_in_bytes") if controllers else ("", "memory.max")
        for part in (PurePosixPath(group), *PurePosixPath(group).parents):
            yield root / "sys/fs/cgroup" / folder / str(part).lstrip("/") / name


def _read_limit(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    # "max" is no limit; the first version writes nearly 2 ** 63 for it.
    return int(text) if text.isdigit() and int(text) < 2**60 else None
