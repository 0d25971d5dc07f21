"""Costs that were measured before."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from checkmate.profiler.cache import CostCache, OpCost, find_cache_folder
from checkmate.profiler.signature import Signature
from checkmate.runtime.device import Device
from checkmate.runtime.protocol import Settings

DEVICE = Device("cpu", "a processor", 2**34, "1.31.1")
SETTINGS = Settings(threads=2)
SIGNATURE = Signature('{"op":"Add"}')
COST = OpCost(1234, 56)


def filled(folder: Path) -> CostCache:
    cache = CostCache(folder, DEVICE, SETTINGS)
    cache.remember(SIGNATURE, COST)
    return cache


def only_file(folder: Path) -> Path:
    (path,) = folder.rglob("*.json")
    return path


def test_what_was_measured_is_remembered_by_another_cache(tmp_path: Path) -> None:
    filled(tmp_path)
    assert CostCache(tmp_path, DEVICE, SETTINGS).find(SIGNATURE) == COST


def test_what_was_not_measured_is_not_known(tmp_path: Path) -> None:
    assert filled(tmp_path).find(Signature('{"op":"Sub"}')) is None


@pytest.mark.parametrize(
    "device",
    [
        replace(DEVICE, provider="cuda"),
        replace(DEVICE, name="another"),
        replace(DEVICE, onnxruntime="1.32.0"),
    ],
)
def test_another_device_has_its_own_costs(device: Device, tmp_path: Path) -> None:
    filled(tmp_path)
    assert CostCache(tmp_path, device, SETTINGS).find(SIGNATURE) is None


def test_another_number_of_threads_has_its_own_costs(tmp_path: Path) -> None:
    filled(tmp_path)
    assert CostCache(tmp_path, DEVICE, Settings(threads=1)).find(SIGNATURE) is None


def damage(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"time_ns": 1},
        {"time_ns": -1234},
        {"time_ns": 1234.0},
        {"time_ns": "1234"},
        {"time_ns": True},
        {"time_ns": None},
        {"workspace_nbytes": -1},
        {"workspace_nbytes": 2**70},
        {"format": "other"},
        {"version": 4},
        {"key": "0" * 64},
        {"sha256": ""},
        {"more": 1},
    ],
)
def test_an_entry_that_was_changed_is_not_believed(
    changes: dict[str, object], tmp_path: Path
) -> None:
    cache = filled(tmp_path)
    damage(only_file(tmp_path), **changes)
    assert cache.find(SIGNATURE) is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000])
def test_a_file_that_is_no_entry_is_not_believed(content: bytes, tmp_path: Path) -> None:
    cache = filled(tmp_path)
    only_file(tmp_path).write_bytes(content)
    assert cache.find(SIGNATURE) is None


def test_a_truncated_entry_is_not_believed_and_is_replaced(tmp_path: Path) -> None:
    cache = filled(tmp_path)
    path = only_file(tmp_path)
    path.write_bytes(path.read_bytes()[:-10])
    assert cache.find(SIGNATURE) is None
    cache.remember(SIGNATURE, COST)
    assert cache.find(SIGNATURE) == COST


def test_an_entry_under_another_name_is_not_believed(tmp_path: Path) -> None:
    cache = filled(tmp_path)
    first = only_file(tmp_path)
    content = first.read_bytes()
    first.unlink()
    other = Signature('{"op":"Sub"}')
    cache.remember(other, OpCost(1, 1))
    only_file(tmp_path).write_bytes(content)
    assert cache.find(other) is None


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert filled(tmp_path / "file").find(SIGNATURE) is None


def test_many_writers_at_once_leave_one_good_entry(tmp_path: Path) -> None:
    caches = [CostCache(tmp_path, DEVICE, SETTINGS) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            list(pool.map(lambda cache: cache.remember(SIGNATURE, COST), caches))
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [
        only_file(tmp_path).name
    ]
    assert caches[0].find(SIGNATURE) == COST


def test_the_folder_is_the_standard_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert find_cache_folder() == Path("/somewhere/checkmate")
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    assert find_cache_folder().parent.parent == Path.home()
