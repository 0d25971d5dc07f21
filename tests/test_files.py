"""Files written whole or not at all."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from checkmate.errors import OutputError
from checkmate.files import check_writable, write_files


def test_all_files_are_written(tmp_path: Path) -> None:
    write_files({tmp_path / "a": b"1", tmp_path / "b": b"2"})
    assert (tmp_path / "a").read_bytes() == b"1"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_when_one_cannot_be_written_none_is(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(OutputError, match="missing"):
        write_files({tmp_path / "a": b"new", tmp_path / "missing" / "b": b"2"})
    assert (tmp_path / "a").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_folder_is_not_overwritten(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="it is a folder"):
        check_writable(tmp_path)


def test_checking_leaves_nothing_behind(tmp_path: Path) -> None:
    check_writable(tmp_path / "new")
    assert not list(tmp_path.iterdir())


def test_a_link_is_followed_and_stays(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target")
    write_files({tmp_path / "link": b"1"})
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"1"


def test_a_pipe_is_written_through(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        read = pool.submit(pipe.read_bytes)
        check_writable(pipe)
        write_files({pipe: b"1"})
        assert read.result(timeout=10) == b"1"
    assert pipe.is_fifo()


def test_a_name_that_is_too_long_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="File name too long"):
        check_writable(tmp_path / ("x" * 300))
