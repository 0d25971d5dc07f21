"""JSON documents read with suspicion: each field is asked for by name and type.

Every error is an `InputError` that says where in the document it is.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from checkmate.errors import InputError
from checkmate.units import MAX_QUANTITY

MAX_NBYTES = 2**28
"""The largest document that is read."""

T = TypeVar("T")


def read_bounded(path: Path) -> bytes:
    """Return the bytes of the file at ``path``; raises `InputError` when that cannot be done."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_NBYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read {str(path)!r}: {error.strerror}") from error
    if len(data) > MAX_NBYTES:
        raise InputError(f"{str(path)!r} is larger than {MAX_NBYTES} B")
    return data


def parse_document(data: bytes, *, format_: str, versions: Sequence[int]) -> Fields:
    """Return the fields of the JSON object in ``data``, of this format and one of ``versions``."""
    fields = _parse_object(data)
    if fields.text("format") != format_:
        raise InputError(f"format is {fields.text('format')!r}, not {format_!r}")
    version = fields.integer("version")
    if version not in versions:
        known = " and ".join(map(str, versions))
        raise InputError(f"{format_} version is {version}, but this program reads {known}")
    return fields


def _parse_object(data: bytes) -> Fields:
    try:
        value: object = json.loads(
            data.decode(), object_pairs_hook=_make_object, parse_constant=_refuse_constant
        )
    except RecursionError as error:
        raise InputError("not a JSON document: nested too deeply") from error
    except ValueError as error:
        raise InputError(f"not a JSON document: {error}") from error
    return Fields("document", value)


def peek_format(path: Path) -> str:
    """Return what the JSON document at ``path`` says its format is; empty when it does not.

    Raises `InputError` when it is not a JSON object.
    """
    fields = _parse_object(read_bounded(path))
    return fields.text("format") if "format" in fields else ""


class Fields:
    """One JSON object at a place in a document."""

    def __init__(self, place: str, value: object) -> None:
        if not isinstance(value, dict):
            raise InputError(f"{place} is not an object")
        self._place = place
        self._values: Mapping[str, object] = value

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def check_keys(self, known: Sequence[str]) -> None:
        """Raise `InputError` when there is a field that is not in ``known``."""
        for key in self._values:
            if key not in known:
                raise InputError(f"{self._place} has unknown field {key!r}")

    def text(self, key: str) -> str:
        """Return the string at ``key``."""
        return _check_text(f"{self._place} field {key!r}", self._get(key))

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the list of strings at ``key``."""
        return self._each(key, _check_text)

    def integer(self, key: str, default: int | None = None) -> int:
        """Return the integer at ``key``, zero or above; ``default`` when there is none."""
        place = f"{self._place} field {key!r}"
        value = self._get(key, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise InputError(f"{place} is not an integer")
        if not 0 <= value <= MAX_QUANTITY:
            raise InputError(f"{place} is not from 0 to {MAX_QUANTITY}")
        return value

    def boolean(self, key: str, default: bool | None = None) -> bool:
        """Return the boolean at ``key``; ``default`` when there is none."""
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise InputError(f"{self._place} field {key!r} is not true or false")
        return value

    def choice(self, key: str, known: Sequence[str]) -> str:
        """Return the string at ``key``, one of ``known``."""
        value = self.text(key)
        if value not in known:
            raise InputError(f"{self._place} field {key!r} is {value!r}, not one of {known}")
        return value

    def nested(self, key: str) -> Fields:
        """Return the object at ``key``."""
        return Fields(f"{self._place} field {key!r}", self._get(key))

    def integers(self, key: str) -> dict[str, int]:
        """Return the object at ``key``, whose values are integers."""
        inner = self.nested(key)
        return {name: inner.integer(name) for name in inner._values}

    def strings(self, key: str) -> dict[str, str]:
        """Return the object at ``key``, whose values are strings."""
        inner = self.nested(key)
        return {name: inner.text(name) for name in inner._values}

    def objects(self, key: str) -> tuple[Fields, ...]:
        """Return the list of objects at ``key``."""
        return self._each(key, Fields)

    def _each(self, key: str, check: Callable[[str, object], T]) -> tuple[T, ...]:
        value = self._get(key)
        if not isinstance(value, list):
            raise InputError(f"{self._place} field {key!r} is not a list")
        return tuple(check(f"{key}[{i}]", item) for i, item in enumerate(value))

    def _get(self, key: str, default: object = None) -> object:
        value = self._values.get(key, default)
        if value is None:
            raise InputError(f"{self._place} has no field {key!r}")
        return value


def _check_text(place: str, value: object) -> str:
    if not isinstance(value, str):
        raise InputError(f"{place} is not a string")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{place} is not Unicode text") from error
    return value


def _make_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise InputError(f"field {twice!r} is given twice in one object")
    return made


def _refuse_constant(name: str) -> None:
    raise InputError(f"not a JSON document: {name} is not a JSON number")
