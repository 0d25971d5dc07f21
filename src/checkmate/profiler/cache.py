"""Costs that were measured before, on the same device in the same way."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

from checkmate.errors import OutputError
from checkmate.files import write_files
from checkmate.profiler.signature import Signature
from checkmate.runtime.device import Device
from checkmate.runtime.protocol import Settings

FORMAT = "checkmate.op-cost"
VERSION = 3
"""Counts the way of measuring too: costs of another version are measured again."""


@dataclass(frozen=True, slots=True)
class OpCost:
    """What one op costs."""

    time_ns: int
    workspace_nbytes: int


def find_cache_folder() -> Path:
    """Return the folder for costs in the user's cache folder, whether it exists or not."""
    standard = os.environ.get("XDG_CACHE_HOME", "")
    if Path(standard).is_absolute():
        return Path(standard) / "checkmate"
    home = Path.home()
    return home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "checkmate"


class CostCache:
    """One small file per op, device and settings; several processes may use it at once.

    A file that is not exactly what was written is no error: its op is measured again. Nor is a
    folder that cannot be written; then nothing is remembered.
    """

    def __init__(self, folder: Path, device: Device, settings: Settings) -> None:
        self._folder = folder
        self._where = {
            "provider": device.provider,
            "device": device.name,
            "onnxruntime": device.onnxruntime,
            "threads": settings.threads,
        }

    def find(self, signature: Signature) -> OpCost | None:
        """Return what ``signature`` costs; None when it is not known."""
        key = self._key(signature)
        try:
            document = json.loads(self._path(key).read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        return _read_entry(document, key)

    def remember(self, signature: Signature, cost: OpCost) -> None:
        """Keep ``cost`` for the next time."""
        key = self._key(signature)
        path = self._path(key)
        content = json.dumps(_make_entry(key, cost)).encode()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_files({path: content})
        except (OSError, OutputError):
            return

    def _key(self, signature: Signature) -> str:
        document = [FORMAT, VERSION, self._where, signature.key]
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.json"


def _make_entry(key: str, cost: OpCost) -> dict[str, object]:
    entry: dict[str, object] = {
        "format": FORMAT,
        "version": VERSION,
        "key": key,
        "time_ns": cost.time_ns,
        "workspace_nbytes": cost.workspace_nbytes,
    }
    return entry | {"sha256": _digest(entry)}


def _read_entry(document: object, key: str) -> OpCost | None:
    """Return the cost in ``document``; None unless it is exactly an entry for ``key``."""
    if not isinstance(document, dict):
        return None
    time_ns, workspace_nbytes = document.get("time_ns"), document.get("workspace_nbytes")
    if not _is_quantity(time_ns) or not _is_quantity(workspace_nbytes):
        return None
    cost = OpCost(time_ns, workspace_nbytes)
    return cost if document == _make_entry(key, cost) else None


def _is_quantity(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < 2**63


def _digest(entry: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(entry, sort_keys=True).encode()).hexdigest()
