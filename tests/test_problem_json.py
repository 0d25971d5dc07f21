"""Problems read from files and written back."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from builders import op, problem, random_training, view
from checkmate.errors import InputError
from checkmate.formats.problem_json import parse_problem, read_problem, render_problem

GOLDEN = """{
"format": "checkmate.problem",
"version": 1,
"name": "small",
"ops": [
{"name": "a", "time_ns": 5, "inputs": ["x"], "outputs": ["a", "mask"], "backward": false,\
 "recomputable": false},
{"name": "v", "time_ns": 0, "inputs": ["a"], "outputs": ["v"], "backward": false},
{"name": "b", "time_ns": 7, "workspace_nbytes": 3, "inputs": ["v", "mask"], "outputs": ["b"],\
 "backward": true}
],
"tensors": [
{"name": "x", "nbytes": 9},
{"name": "a", "nbytes": 4},
{"name": "mask", "nbytes": 2},
{"name": "v", "nbytes": 0, "source": "a"},
{"name": "b", "nbytes": 1}
],
"outputs": ["b"]
}
"""
SMALL = problem(
    op("a", "x", makes={"a": 4, "mask": 2}, time_ns=5, recomputable=False),
    view("v", "a", time_ns=0),
    op("b", "v mask", time_ns=7, workspace_nbytes=3, backward=True),
    outputs="b",
    resident={"x": 9},
)


def test_version_1_is_written_as_it_always_was() -> None:
    assert render_problem(SMALL) == GOLDEN


def test_version_1_is_read_as_it_always_was() -> None:
    assert parse_problem(GOLDEN.encode()) == SMALL


@pytest.mark.parametrize("seed", range(50))
def test_what_is_written_is_read_back_equal(seed: int) -> None:
    small = random_training(random.Random(seed), 5)
    assert parse_problem(render_problem(small).encode()) == small


def test_flags_may_be_absent() -> None:
    document = json.loads(GOLDEN)
    del document["ops"][1]["backward"]
    assert parse_problem(json.dumps(document).encode()) == SMALL


def test_a_file_that_is_not_there_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read '.*none.json': No such file"):
        read_problem(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{", "[", "not a JSON document: "),
        (GOLDEN, "[" * 100_000, "not a JSON document: nested too deeply"),
        (GOLDEN, "\N{BYTE ORDER MARK}[]", "not a JSON document: "),
        (GOLDEN, "3", "document is not an object"),
        ('"time_ns": 5', '"time_ns": NaN', "NaN is not a JSON number"),
        ('"time_ns": 5', '"time_ns": ' + "9" * 5000, "not a JSON document: "),
        ('"time_ns": 5', '"time_ns": 5.0', r"ops\[0\] field 'time_ns' is not an integer"),
        ('"time_ns": 5', '"time_ns": true', r"ops\[0\] field 'time_ns' is not an integer"),
        ('"time_ns": 5', '"time_ns": -5', r"ops\[0\] field 'time_ns' is not from 0 to 9007"),
        ('"time_ns": 5', '"time_ns": 9007199254740992', "is not from 0 to 9007199254740991"),
        ('"time_ns": 5', '"time_ns": null', r"ops\[0\] has no field 'time_ns'"),
        ('"time_ns": 5', '"time_ns": 5, "time_ns": 5', "field 'time_ns' is given twice"),
        ('"time_ns": 5', '"tims_ns": 5', r"ops\[0\] has unknown field 'tims_ns'"),
        ('"nbytes": 4', '"nbytes": "4"', r"tensors\[1\] field 'nbytes' is not an integer"),
        ('"name": "mask"', '"name": 3', r"tensors\[2\] field 'name' is not a string"),
        ('"name": "mask"', '"name": "\\ud800"', r"tensors\[2\] field 'name' is not Unicode"),
        ('"name": "mask"', '"name": "b"', "op 'a' outputs: tensor 'mask' is not among"),
        ('"inputs": ["x"]', '"inputs": "x"', r"ops\[0\] field 'inputs' is not a list"),
        ('"inputs": ["x"]', '"inputs": [3]', r"inputs\[0\] is not a string"),
        ('"inputs": ["x"]', '"inputs": ["b"]', "op 'a' comes before 'b'"),
        ('"recomputable": false', '"recomputable": 0', "'recomputable' is not true or false"),
        ('"source": "a"', '"source": "q"', "tensor 'v' source: tensor 'q' is not among"),
        ('"source": "a"', '"source": "x"', "view 'v' is made by an op that does not read"),
        ('"outputs": ["b"]\n}', '"outputs": ["c"]\n}', "outputs: tensor 'c' is not among"),
        ('"checkmate.problem"', '"checkmate.schedule"', "format is 'checkmate.schedule', not"),
        ('"version": 1', '"version": 2', "version is 2, but this program reads 1"),
        ('"tensors": [\n', '"tensors": [\n4, ', r"tensors\[0\] is not an object"),
    ],
)
def test_a_malformed_document_is_an_error_that_says_where(old: str, new: str, message: str) -> None:
    text = GOLDEN.replace(old, new)
    assert text != GOLDEN
    with pytest.raises(InputError, match=message):
        parse_problem(text.encode())


def test_bytes_that_are_not_text_are_an_input_error() -> None:
    with pytest.raises(InputError, match="not a JSON document"):
        parse_problem(b'{"format": "\xff"}')
