"""The peak of a process as its kernel sees it: whole pages, whatever asked for them."""

from __future__ import annotations

from pathlib import Path

MALLOC_ENVIRONMENT = {"MALLOC_MMAP_THRESHOLD_": "4096", "MALLOC_TRIM_THRESHOLD_": "4096"}
"""Makes the C library give each freed tensor back at once; read when a process starts."""

_STATUS = Path("/proc/self/status")


def is_measurable() -> bool:
    """Return whether this kernel tells, and resets, the peak of a process."""
    return _STATUS.exists() and "VmHWM" in _STATUS.read_text()


def read_resident_nbytes() -> int:
    """Return what is resident now."""
    return _read("VmRSS:")


def read_peak_nbytes() -> int:
    """Return the most that was resident since the last reset."""
    return _read("VmHWM:")


def reset_peak() -> None:
    """Let the peak start from what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")


def _read(key: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    raise OSError(f"{_STATUS} has no {key}")
