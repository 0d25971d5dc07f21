"""The floors of the house: imports only point down, heavy packages have one room each."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "checkmate"
FILES = sorted(SOURCE.rglob("*.py"))

FLOORS = {
    "errors": 0, "units": 0, "files": 0,
    "graph": 1, "costs": 1, "schedule": 1, "problem": 1, "placement": 1,
    "simulate": 2, "liveness": 2, "plan": 2, "folding": 2, "arena": 2, "chunks": 2,
    "milp": 3, "heuristics": 3,
    "solver": 4,
    "search": 5,
    "engine": 6,
    "trial": 7,
    "cli": 8, "__main__": 9,
}  # fmt: skip
WING = {"onnxio", "runtime", "profiler", "formats"}
WING_STANDS_ON = {"profiler": {"runtime", "onnxio"}, "runtime": {"onnxio"}}
"""Which rooms of the wing a room of the wing may use; all may use floors 0 to 2."""

ROOMS_OF = {
    "highspy": {"solver"},
    "onnxruntime": {"runtime"},
    "onnx": {"onnxio", "profiler"},
    "click": {"cli"},
    "rich": {"cli"},
}


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            yield node.module or ""


def may_use(user: str, used: str) -> bool:
    if used in {user, "__init__"} or user == "__init__":
        return True
    if user in WING:
        return FLOORS.get(used, 9) <= 2 or used in WING_STANDS_ON.get(user, set())
    if used in WING:
        return FLOORS[user] >= 7
    return FLOORS[used] < FLOORS[user] or FLOORS[used] == FLOORS[user] <= 2


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_down(path: Path) -> None:
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "checkmate":
            used = parts[1] if len(parts) > 1 else "__init__"
            assert may_use(room(path), used), f"{room(path)} may not import {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_heavy_packages_have_one_room(path: Path) -> None:
    for name in imports(path):
        rooms = ROOMS_OF.get(name.split(".")[0])
        assert rooms is None or room(path) in rooms, f"{room(path)} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_are_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 300


def test_only_certify_makes_plans() -> None:
    makers = [path for path in FILES if "Plan(" in path.read_text().replace("class Plan", "")]
    assert [path.name for path in makers] == ["plan.py"]


def test_nothing_is_pickled_or_evaluated() -> None:
    for path in FILES:
        assert not {"pickle", "marshal", "shelve"} & {n.split(".")[0] for n in imports(path)}
        calls = (
            node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)
        )
        names = {call.func.id for call in calls if isinstance(call.func, ast.Name)}
        assert not {"eval", "exec"} & names
