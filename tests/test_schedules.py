"""The shipped schedules are what `solve` writes, and hold."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from checkmate.cli.record import Held, make_record
from checkmate.cli.source import Asked, read_source
from checkmate.engine.solve import run_baseline, solve
from checkmate.formats.schedule_json import read_schedule, render_schedule, resolve_instructions
from checkmate.plan import certify
from checkmate.search.finding import Limits
from onnx_models import GRAPHS

SCHEDULES = sorted((GRAPHS.parent / "schedules").glob("*.json"))
SCHEMA = GRAPHS.parent / "src/checkmate/formats/schemas/schedule.v2.schema.json"


@pytest.mark.parametrize("path", SCHEDULES, ids=lambda path: path.stem)
def test_a_shipped_schedule_is_what_solve_writes(path: Path) -> None:
    record = read_schedule(path)
    source = read_source(GRAPHS / f"{path.stem}.onnx", Asked({}, costs="flops"))
    plan = solve(source.problem, record.budget_nbytes, record.claim.strategy, Limits())
    again = make_record(source, plan, run_baseline(source.problem), Held("run", "file"))
    assert render_schedule(again) == path.read_text()


@pytest.mark.parametrize("path", SCHEDULES, ids=lambda path: path.stem)
def test_a_shipped_schedule_holds(path: Path) -> None:
    record = read_schedule(path)
    source = read_source(GRAPHS / f"{path.stem}.onnx", Asked({}, costs="flops"))
    source.check_digest(record)
    schedule = resolve_instructions(record, source.problem.graph)
    plan = certify(source.problem, schedule, record.budget_nbytes, record.claim)
    assert plan.peak.nbytes == record.peak_nbytes
    assert plan.time_ns == record.time_ns
    jsonschema.validate(json.loads(path.read_text()), json.loads(SCHEMA.read_text()))


def test_there_is_one_for_each_full_graph() -> None:
    assert [p.stem for p in SCHEDULES] == sorted(p.stem for p in GRAPHS.glob("*-full-*.onnx"))
