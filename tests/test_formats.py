"""Schedule, costs files: what is written is read back, what is wrong is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from builders import op, problem
from checkmate.costs import Costs, Origin
from checkmate.errors import InputError
from checkmate.formats.costs_json import (
    digest_costs,
    make_record,
    parse_costs,
    render_costs,
    resolve_costs,
)
from checkmate.formats.schedule_json import (
    Lineage,
    parse_schedule,
    read_schedule,
    render_schedule,
    resolve_instructions,
)
from checkmate.graph import OpId
from checkmate.liveness import insert_frees

GOLDEN = Path(__file__).parent / "golden"


def test_version_1_of_the_schedule_is_read_for_ever() -> None:
    record = read_schedule(GOLDEN / "schedule-v1.json")
    assert record.graph.name == "small"
    assert record.claim.space == "frontier-advancing"
    assert record.dims == {"N": 32}
    assert record.peak.workspace_nbytes == 2
    assert record.instructions[:2] == (("compute", "a"), ("compute", "b"))
    assert record.time_ns == 31
    assert record.graph.lineage == Lineage(record.graph.sha256, "none", "", "")
    assert record.order == "file"


def test_version_2_of_the_schedule_is_read_for_ever() -> None:
    record = read_schedule(GOLDEN / "schedule-v2.json")
    assert record.graph.lineage == Lineage("c" * 64, "basic", "1.31.1", "cpu")
    assert record.order == "memory"
    assert record.time_ns == 31


def test_a_schedule_read_back_is_written_equal() -> None:
    text = (GOLDEN / "schedule-v2.json").read_text()
    assert render_schedule(parse_schedule(text.encode())) == text


def test_instructions_are_resolved_by_name() -> None:
    small = problem(op("a"), op("b", "a"), op("c", "a b"), outputs="c")
    record = read_schedule(GOLDEN / "schedule-v1.json")
    assert resolve_instructions(record, small.graph) == insert_frees(
        small.graph, [OpId(0), OpId(1), OpId(0), OpId(2)]
    )


def test_a_schedule_of_another_graph_names_what_is_missing() -> None:
    record = read_schedule(GOLDEN / "schedule-v1.json")
    with pytest.raises(InputError, match="names op 'b', which the graph does not have"):
        resolve_instructions(record, problem(op("a"), op("z", "a"), outputs="z").graph)


def _drop(key: str) -> Callable[[dict[str, object]], object]:
    return lambda document: document.pop(key)


def _set(key: str, value: object) -> Callable[[dict[str, object]], object]:
    return lambda document: document.update({key: value})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_drop("budget_nbytes"), "has no field 'budget_nbytes'"),
        (_set("version", 3), "version is 3, but this program reads 1 and 2"),
        (_set("version", 2), "field 'graph' has no field 'optimization'"),
        (_set("format", "other"), "format is 'other'"),
        (_set("peak_nbytes", -1), "is not from 0"),
        (_set("peak_nbytes", 1.5), "is not an integer"),
        (_set("peak_nbytes", True), "is not an integer"),
        (_set("peak", []), "is not an object"),
        (_set("search", {"strategy": "x", "space": "moon", "termination": "gap"}), "is 'moon'"),
        (_set("instructions", [{"jump": "a"}]), "unknown field 'jump'"),
        (_set("instructions", [{"compute": "a", "free": "a"}]), "unknown field 'free'"),
        (_set("instructions", {"compute": "a"}), "is not a list"),
    ],
)
def test_a_schedule_with_a_wrong_field_is_refused_by_name(
    change: Callable[[dict[str, object]], object], message: str
) -> None:
    document = json.loads((GOLDEN / "schedule-v1.json").read_text())
    change(document)
    with pytest.raises(InputError, match=message):
        parse_schedule(json.dumps(document).encode())


def test_costs_are_read_back_equal() -> None:
    small = problem(op("a", time_ns=5, workspace_nbytes=7), op("b", "a"), outputs="b")
    costs = Costs((5, 1), (7, 0), Origin("profile", "cpu", "a processor", "1.2.3"))
    record = make_record(small.graph, "d" * 64, {"N": 2}, costs)
    assert parse_costs(render_costs(record).encode()) == record
    assert resolve_costs(record, small.graph) == costs


def test_costs_without_an_op_of_the_graph_are_refused() -> None:
    small = problem(op("a"), outputs="a")
    record = make_record(small.graph, "", {}, small.costs)
    with pytest.raises(InputError, match="the costs have no op 'b'"):
        resolve_costs(record, problem(op("a"), op("b", "a"), outputs="b").graph)


def test_the_digest_of_costs_depends_on_every_number_and_not_on_their_origin() -> None:
    small = problem(op("a", time_ns=5), op("b", "a"), outputs="b")
    digest = digest_costs(small.graph, small.costs)
    moved = Costs((5, 1), (0, 0), Origin("profile", "cpu", "elsewhere", "9"))
    assert digest_costs(small.graph, moved) == digest
    assert digest_costs(small.graph, Costs((5, 2), (0, 0), Origin("file"))) != digest
    assert digest_costs(small.graph, Costs((5, 1), (0, 1), Origin("file"))) != digest
