"""Ctrl-C at the command: the first takes what is in hand, else 130; never a traceback."""

from __future__ import annotations

import json
import os
import pty
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from builders import random_training
from checkmate.formats.problem_json import render_problem

SOURCE = str(Path(__file__).parents[1] / "src")

PROGRAM = """
import sys
print("up", file=sys.stderr, flush=True)
from checkmate.__main__ import main
main()
"""


@contextmanager
def start(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Start a solve that takes far longer than the test."""
    (folder / "p.json").write_text(render_problem(random_training(random.Random(2), 120)))
    arguments = ("p.json", "--gap", "0%", "--time-limit", "60s", "--json", *options)
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "solve", *arguments],
        cwd=folder, env=os.environ | {"PYTHONPATH": SOURCE}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def await_search(process: subprocess.Popen[str]) -> None:
    """Return when the budget was echoed, after which the search begins."""
    assert process.stderr is not None
    while not process.stderr.readline().startswith("budget"):
        assert process.poll() is None


def list_files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_ctrl_c_writes_what_was_found(tmp_path: Path) -> None:
    with start(tmp_path, "--budget", "50%") as process:
        await_search(process)
        time.sleep(2.0)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=20)
    assert process.returncode == 0, errors
    document = json.loads(output)
    assert document["search"]["termination"] == "interrupted"
    assert document["seconds"] < 30
    written = json.loads((tmp_path / "p.schedule.json").read_text())
    assert document["time_ns"] == written["time_ns"] > written["bound_ns"]
    assert written["peak_nbytes"] <= written["budget_nbytes"]


@pytest.mark.parametrize("delay_s", [0.08, 0.15, 0.3, 0.5])
def test_a_ctrl_c_at_the_start_ends_quietly(tmp_path: Path, delay_s: float) -> None:
    with start(tmp_path, "--budget", "50%", "--strategy", "exact") as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "up\n"
        time.sleep(delay_s)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert output == ""
    assert "Traceback" not in errors
    assert list_files(tmp_path) == ["p.json"]


def test_a_ctrl_c_with_nothing_in_hand_writes_nothing(tmp_path: Path) -> None:
    with start(tmp_path, "--budget", "50%", "--strategy", "exact") as process:
        await_search(process)
        time.sleep(1.0)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert (output, errors.count("\n")) == ("", 1)
    assert errors.startswith("error: interrupted")
    assert list_files(tmp_path) == ["p.json"]


def test_progress_is_shown_on_a_terminal_and_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(render_problem(random_training(random.Random(2), 12)))
    arguments = [
        sys.executable,
        "-m",
        "checkmate",
        "solve",
        "p.json",
        "--budget",
        "60%",
        "--gap",
        "5%",
        "--json",
    ]
    environment = os.environ | {"PYTHONPATH": SOURCE, "TERM": "xterm"}
    ours, theirs = pty.openpty()
    shown = subprocess.run(
        arguments, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=theirs, check=True
    )
    os.close(theirs)
    text = os.read(ours, 65536).decode()
    os.close(ours)
    hidden = subprocess.run(
        arguments, cwd=tmp_path, env=environment, capture_output=True, check=True
    )
    assert "; Ctrl-C takes it" in text
    assert "overhead +" in text
    assert b"Ctrl-C" not in hidden.stderr
    assert b"\x1b" not in hidden.stderr
    assert json.loads(shown.stdout)["time_ns"] == json.loads(hidden.stdout)["time_ns"]
