"""Ways to damage a JSON document. Used by `bench/fuzz.py`."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator

from mutations import ODD_NUMBERS, ODD_TEXTS, mutate_bytes

Value = dict[str, "Value"] | list["Value"] | str | int | float | bool | None
Container = dict[str, Value] | list[Value]
ODD_VALUES: tuple[Value, ...] = (
    *ODD_NUMBERS, *ODD_TEXTS, None, True, False, 1.5, 1e308, -0.0, 10**30, 2**64, [], {}, [[]],
    [None], {"": None}, [0] * 1000, {"format": "checkmate.problem"},
    "\ud800", "checkmate.schedule",
)  # fmt: skip


def mutate_document(content: bytes, chance: random.Random) -> bytes:
    """Return ``content`` with up to four faults, in what it says or how it is written."""
    if chance.random() < 0.2:
        return mutate_bytes(content, chance)
    document: Value = json.loads(content)
    for _ in range(chance.randint(1, 4)):
        containers = list(_walk(document))
        if containers:
            chance.choice(CHANGES)(chance.choice(containers), chance)
    text = json.dumps(document)
    if chance.random() < 0.2:
        text = chance.choice(WRITINGS)(text, chance)
    return text.encode(errors="surrogatepass")


def replace_value(container: Container, chance: random.Random) -> None:
    """Put an odd value in the place of one."""
    key = _choose_key(container, chance)
    if key is not None:
        container[key] = chance.choice(ODD_VALUES)  # type: ignore[call-overload, index]


def drop_value(container: Container, chance: random.Random) -> None:
    """Leave out a field or an item."""
    key = _choose_key(container, chance)
    if key is not None:
        del container[key]  # type: ignore[arg-type]


def copy_value(container: Container, chance: random.Random) -> None:
    """Put one value of a container in the place of another, or add it."""
    source, target = _choose_key(container, chance), _choose_key(container, chance)
    if source is None or target is None:
        return
    value = container[source]  # type: ignore[index, call-overload]
    if isinstance(container, list) and chance.random() < 0.5:
        container.append(value)
    else:
        container[target] = value  # type: ignore[call-overload, index]


def add_field(container: Container, chance: random.Random) -> None:
    """Add a field or an item that should not be there."""
    value = chance.choice(ODD_VALUES)
    if isinstance(container, dict):
        container[chance.choice(("extra", "", "views", "version", "workspace_nbytes"))] = value
    else:
        container.insert(chance.randint(0, len(container)), value)


def shuffle_items(container: Container, chance: random.Random) -> None:
    """Put the items of a list in any order."""
    if isinstance(container, list):
        chance.shuffle(container)


CHANGES: tuple[Callable[[Container, random.Random], None], ...] = (
    replace_value, replace_value, drop_value, copy_value, add_field, shuffle_items,
)  # fmt: skip


def nest_deeply(text: str, chance: random.Random) -> str:
    """Put a deep tower of lists or objects in the place of a number."""
    depth = chance.choice((10, 1000, 100_000))
    tower = "[" * depth + "]" * depth
    if chance.random() < 0.5:
        tower = '{"a":' * depth + "1" + "}" * depth
    return _replace_number(text, tower, chance)


def write_odd_number(text: str, chance: random.Random) -> str:
    """Write a number that JSON has not, or a very long one."""
    odd = ("NaN", "Infinity", "-Infinity", "1e999", "9" * 5000, "0x10", "01", "-0", "1.0", "1E2")
    return _replace_number(text, chance.choice(odd), chance)


def repeat_field(text: str, chance: random.Random) -> str:
    """Give a field twice."""
    starts = [at for at, letter in enumerate(text) if letter == "{"]
    at = chance.choice(starts) + 1
    field = text[at:].split(",", maxsplit=1)[0]
    return f"{text[:at]}{field},{text[at:]}"


def add_around(text: str, chance: random.Random) -> str:
    """Write something before or behind the document."""
    before, behind = chance.choice(
        (("\ufeff", ""), ("[", "]"), ("", "{}"), ("", "\x00"), (" " * 500, ""), ("{", ""))
    )
    return f"{before}{text}{behind}"


WRITINGS: tuple[Callable[[str, random.Random], str], ...] = (
    nest_deeply, write_odd_number, repeat_field, add_around,
)  # fmt: skip


def _replace_number(text: str, written: str, chance: random.Random) -> str:
    starts = [at for at, letter in enumerate(text) if letter.isdigit() and text[at - 1] == " "]
    if not starts:
        return written
    at = chance.choice(starts)
    rest = text[at:].lstrip("0123456789")
    return f"{text[:at]}{written}{rest}"


def _choose_key(container: Container, chance: random.Random) -> str | int | None:
    if not container:
        return None
    if isinstance(container, dict):
        return chance.choice(list(container))
    return chance.randrange(len(container))


def _walk(value: Value) -> Iterator[Container]:
    if isinstance(value, dict | list):
        yield value
        for item in value.values() if isinstance(value, dict) else value:
            yield from _walk(item)
