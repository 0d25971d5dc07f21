"""Names from files of strangers, made safe for a terminal."""

from __future__ import annotations

import unicodedata

_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Categories of characters that move the cursor, turn the direction of text or show nothing."""


def escape(text: str) -> str:
    """Return ``text`` with every character that is not seen as itself written as its code."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape_one(c) if unicodedata.category(c) in _UNSEEN else c for c in text)


def escape_lines(text: str) -> str:
    """Return ``text`` with all of its lines escaped; the ends of lines stay."""
    return "\n".join(map(escape, text.split("\n")))


def shorten(name: str, width: int) -> str:
    """Return ``name``, escaped, in ``width`` characters; what is too long loses its middle.

    Names of one model differ at their ends.
    """
    shown = escape(name)
    if len(shown) <= width:
        return shown
    n_first = (width - 1) // 3
    return f"{shown[:n_first]}…{shown[n_first + 1 - width :]}"


def _escape_one(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
