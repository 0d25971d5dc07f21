"""Strategies side by side, and what the command says of them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from builders import op, problem, random_training, training_chain
from checkmate.engine.compare import LP_BOUND, Row, compare, find_failure
from checkmate.errors import (
    InfeasibleError,
    NoneInSpaceError,
    NotFoundError,
    SolverError,
    UnsuitableError,
)
from checkmate.folding import fold_views
from checkmate.formats.problem_json import read_problem, render_problem
from checkmate.search.finding import Limits
from checkmate.search.strategies import STRATEGIES
from onnx_models import GRAPHS
from oracle import find_best_time
from test_cli import checkmate

PROVE = Limits(0.0)
PUBLISHED = ("checkpoint-last", "ap-sqrt", "ap-greedy", "linearized-sqrt", "linearized-greedy")


@pytest.mark.parametrize(
    ("budget_nbytes", "optimum_ns", "least_bound_ns"), [(4, 26, 22), (5, 22, 21), (6, 21, 20)]
)
def test_the_network_of_the_paper_has_its_published_optima_and_bounds(
    budget_nbytes: int, optimum_ns: int, least_bound_ns: int
) -> None:
    small = training_chain(8)
    asked = tuple(name for name in STRATEGIES if name not in ("auto", "stages"))
    rows = tuple(compare(small, budget_nbytes, asked, PROVE))
    found = {row.strategy: row.plan.time_ns for row in rows if row.plan is not None}
    bounds = {row.strategy: row.bound_ns for row in rows}
    assert min(found.values()) == found["exact"] == optimum_ns
    assert least_bound_ns <= (bounds[LP_BOUND] or 0) <= optimum_ns
    assert bounds["rounding"] == bounds[LP_BOUND]


def test_rounding_reaches_the_published_optimum_of_vgg16() -> None:
    path = GRAPHS.parent.parent / "shared" / "instances" / "vgg16-b256-v100.json"
    if not path.exists():
        pytest.skip(f"needs {path}, the published instances")
    row = next(compare(read_problem(path), 14_242_598_092, ("rounding",), Limits()))
    assert row.plan is not None
    assert row.plan.time_ns <= 1.0198 * 15_500_000


@pytest.mark.parametrize("seed", range(12))
def test_no_strategy_is_ahead_of_the_oracle_or_above_the_budget(seed: int) -> None:
    rng = random.Random(seed)
    small = fold_views(random_training(rng, 4)).folded
    keep_all = next(compare(small, 10**9, ("keep-all",), PROVE)).plan
    assert keep_all is not None
    budget_nbytes = int(keep_all.peak.nbytes * rng.choice((0.95, 0.9, 0.8)))
    best_ns = find_best_time(small, budget_nbytes)
    rows = tuple(compare(small, budget_nbytes, (*PUBLISHED, "rounding"), PROVE))
    for plan in (row.plan for row in rows if row.plan is not None):
        assert plan.peak.nbytes <= budget_nbytes
        assert best_ns is not None
        # Computes that nothing reads are left out, which may lead out of the oracle's space.
        assert plan.time_ns >= min(best_ns, plan.claim.bound_ns)
    bound_ns = rows[-1].bound_ns
    assert bound_ns is None or best_ns is None or bound_ns <= best_ns
    if best_ns is None:
        assert rows[-1].verdict in ("none in space", "infeasible", "bound")


def test_each_verdict_says_what_happened() -> None:
    small = problem(
        op("a", nbytes=4), op("b", "a", nbytes=4), op("c", "b a", nbytes=4),
        op("g", "c a", nbytes=4, backward=True), outputs="g",
    )  # fmt: skip
    asked = ("keep-all", "revolve", "greedy")
    rows = {row.strategy: row for row in compare(small, 12, asked, PROVE)}
    assert [row.verdict for row in rows.values()] == ["found", "unsuitable", "found", "bound"]
    assert "is no chain: forward op 'c'" in str(rows["revolve"].error)
    rows = {row.strategy: row for row in compare(small, 11, asked, PROVE)}
    assert rows[LP_BOUND].verdict == "infeasible"
    assert rows["keep-all"].verdict == "not found"


@pytest.mark.parametrize(
    ("errors", "kind"),
    [
        ((NotFoundError("a"), InfeasibleError("b"), SolverError("c")), InfeasibleError),
        ((UnsuitableError("a"), NoneInSpaceError("b")), NoneInSpaceError),
        ((NotFoundError("a"), SolverError("b")), SolverError),
        ((UnsuitableError("a"),), UnsuitableError),
    ],
)
def test_a_comparison_without_a_plan_fails_with_the_strongest_claim(
    errors: tuple[NotFoundError, ...], kind: type[Exception]
) -> None:
    failure = find_failure([Row("x", "not found", error=error) for error in errors])
    assert type(failure) is kind


def write(folder: Path) -> Path:
    path = folder / "chain.json"
    path.write_text(render_problem(training_chain(8)))
    return path


def test_the_command_prints_one_document_and_writes_nothing(tmp_path: Path) -> None:
    path = write(tmp_path)
    done = checkmate(
        "compare", str(path), "--budget", "50%", "--strategy", "revolve", "--strategy", "ap-sqrt",
        "--strategy", "revolve", "--json", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [row["strategy"] for row in document["strategies"]] == ["revolve", "ap-sqrt", LP_BOUND]
    revolve, _, bound = document["strategies"]
    assert revolve["peak_nbytes"] <= document["budget_nbytes"] == 5
    assert revolve["time_ns"] == document["baseline_time_ns"] + revolve["recomputes"] == 22
    assert bound == {
        "strategy": LP_BOUND, "verdict": "bound", "time_ns": None, "peak_nbytes": None,
        "recomputes": None, "bound_ns": 22, "space": "frontier-advancing", "termination": None,
        "seconds": bound["seconds"], "reason": None,
    }  # fmt: skip
    assert "revolve" in done.stderr
    assert [item.name for item in tmp_path.iterdir()] == ["chain.json"]


def test_exit_codes_tell_proof_from_not_found(tmp_path: Path) -> None:
    path = write(tmp_path)
    asked = ("compare", str(path), "--strategy", "keep-all")
    assert checkmate(*asked, "--budget", "40%", cwd=tmp_path).returncode == 5
    assert checkmate(*asked, "--budget", "10%", cwd=tmp_path).returncode == 4
