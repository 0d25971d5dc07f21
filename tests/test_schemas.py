"""The JSON Schemas that ship in the package describe the files that are written."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest

from builders import op, problem, view
from checkmate.formats.costs_json import make_record, render_costs
from checkmate.formats.problem_json import render_problem

GOLDEN = Path(__file__).parent / "golden"


def validate(kind: str, text: str, version: int = 1) -> None:
    name = f"schemas/{kind}.v{version}.schema.json"
    schema = files("checkmate.formats").joinpath(name).read_text()
    jsonschema.validate(json.loads(text), json.loads(schema))


@pytest.mark.parametrize("version", [1, 2])
def test_the_golden_schedule_has_the_schema(version: int) -> None:
    validate("schedule", (GOLDEN / f"schedule-v{version}.json").read_text(), version)


def test_costs_and_problems_have_their_schemas() -> None:
    small = problem(
        op("a", recomputable=False, workspace_nbytes=3), view("v", "a"), op("b", "v"), outputs="b"
    )
    validate("costs", render_costs(make_record(small.graph, "0" * 64, {}, small.costs)))
    validate("problem", render_problem(small))


def test_a_float_has_no_place_in_a_schedule() -> None:
    document = json.loads((GOLDEN / "schedule-v1.json").read_text()) | {"time_ns": 1.5}
    with pytest.raises(jsonschema.ValidationError, match="is not of type 'integer'"):
        validate("schedule", json.dumps(document))
