"""The only room with onnxruntime, which lives in child processes: a crash there ends no one else.

Parent side (no onnxruntime import): ``arrays``, ``cgroup``, ``device``, ``execute``, ``inputs``,
``worker``.
Child side: ``capi``, ``child``, ``counting``, ``placing``, ``probing``, ``racing``, ``resident``,
``running``, ``session``, ``timing``. Both: ``dtypes``, ``protocol``. For programs that run a
rewritten model: ``open``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from checkmate.runtime.open import open_session

__all__ = ["open_session"]


def __getattr__(name: str) -> object:
    """Import `open_session`, and with it onnxruntime, when it is asked for."""
    if name == "open_session":
        from checkmate.runtime.open import open_session  # noqa: PLC0415  # onnxruntime is slow

        return open_session
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
