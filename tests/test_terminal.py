"""Names of strangers do not reach the terminal as they are."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from builders import chain
from checkmate.cli.report import echo_note, print_table
from checkmate.cli.terminal import escape, shorten
from checkmate.formats.problem_json import render_problem
from onnx_models import save, save_proto
from test_cli import checkmate

CLEAR = "\x1b[2J"
WILD = f"a{CLEAR}\x07\r\x9b\u202e\u2028b"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("/layers/Conv_0:1", "/layers/Conv_0:1"),
        ("größe 層 …", "größe 層 …"),
        ("a\nb\tc\x00", "a\\x0ab\\x09c\\x00"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x7f\x9b31m", "\\x7f\\x9b31m"),
        ("\u202eevil\u2066\u200b\u2028", "\\u202eevil\\u2066\\u200b\\u2028"),
        ("\ud800 \U000e0041", "\\ud800 \\U000e0041"),
    ],
)
def test_what_is_not_seen_is_written_as_its_code(text: str, shown: str) -> None:
    assert escape(text) == shown


@pytest.mark.parametrize(
    ("name", "width", "shown"),
    [("abc", 3, "abc"), ("abcdefghij", 7, "ab…ghij"), ("\x1babcdef", 7, "\\x…cdef")],
)
def test_a_long_name_loses_its_middle(name: str, width: int, shown: str) -> None:
    assert shorten(name, width) == shown
    assert len(shorten(name, width)) <= width


def test_notes_and_tables_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    echo_note(WILD)
    print_table((WILD, WILD), [(WILD, WILD)], title=WILD)
    printed = capsys.readouterr().err
    assert printed.count("\\x1b[2J") == 6
    assert not set(WILD) - {"a", "b", "[", "2", "J"} & set(printed)


def write_wild_model(folder: Path) -> None:
    """Write a model in which everything that has a name has control characters in it."""
    save(folder, "g (float[N, 4] x, float[4] w) => (float[N, 4] y, float z) {"
                 " y = Mul(x, w) z = ReduceSum <keepdims = 0> (y) }")  # fmt: skip
    proto = onnx.load(folder / "model.onnx")
    graph = proto.graph
    graph.name = proto.producer_name = WILD
    for node in graph.node:
        node.name = f"{WILD}{node.op_type}"
        node.input[:] = [f"{WILD}{name}" for name in node.input]
        node.output[:] = [f"{WILD}{name}" for name in node.output]
    for item in (*graph.input, *graph.output):
        item.name = f"{WILD}{item.name}"
        for dim in item.type.tensor_type.shape.dim:
            dim.dim_param = WILD if dim.dim_param else ""
    for item in (graph.input[1],):
        item.type.tensor_type.shape.dim[0].dim_value = 4
    for item in (graph.input[0], graph.output[0]):
        item.type.tensor_type.shape.dim[1].dim_value = 4
    save_proto(folder, proto)


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "model.onnx"),
        ("show", "model.onnx", "--dim", f"{WILD}=3"),
        ("show", "model.onnx", "--dim", f"{WILD}=3", "--json"),
        ("show", "model.onnx", "--loss", f"{WILD}"),
        ("show", f"{WILD}.onnx"),
        ("show", "model.onnx", "--list-dims"),
        ("solve", "model.onnx", "--budget", "1B", "--costs", "flops", "--dim", f"{WILD}=3"),
        ("solve", "model.onnx", "--budget", "1GiB", "--costs", "flops", "--dim", f"{WILD}=3"),
        ("solve", "model.onnx", "--budget", "1GiB", "--costs", "flops"),
        ("solve", "model.onnx", "--budget", WILD),
        ("solve", "model.onnx", f"--{WILD}"),
    ],
)
def test_no_command_prints_a_control_character_of_a_name(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    write_wild_model(tmp_path)
    done = checkmate(*arguments, cwd=tmp_path)
    printed = done.stdout + done.stderr
    assert "[2J" in printed
    assert "Traceback" not in printed
    assert {c for c in printed if c != "\n" and not c.isprintable()} == set()


def test_names_of_problem_files_are_escaped(tmp_path: Path) -> None:
    text = json.loads(render_problem(chain(4, 2, 7, 1)))
    text["name"] = WILD
    (tmp_path / "p.json").write_text(json.dumps(text).replace('"op2"', json.dumps(WILD)))
    done = checkmate("show", "p.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "\\x1b[2J" in done.stderr
    assert {c for c in done.stderr if c != "\n" and not c.isprintable()} == set()


def test_an_error_about_an_operator_is_escaped(tmp_path: Path) -> None:
    proto = onnx.load(save(tmp_path, "g (float[2] x) => (float[2] y) { a = Abs(x) y = Exp(a) }"))
    proto.graph.node[0].op_type = f"Strange{CLEAR}"
    save_proto(tmp_path, proto)
    done = checkmate("solve", "model.onnx", "--budget", "1GiB", "--costs", "flops", cwd=tmp_path)
    assert done.returncode == 3
    assert done.stderr.startswith("error: op Strange\\x1b[2J")
    assert "\x1b" not in done.stderr
