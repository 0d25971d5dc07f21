"""What ``check --run`` proves: every property fails when it is broken."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from checkmate.cli.verdicts import make_document, print_trial
from checkmate.errors import InputError
from checkmate.onnxio.read import read_model
from checkmate.onnxio.rewrite import COPY_ATTRIBUTE
from checkmate.onnxio.write import render_model
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.limited import LimitedRuns
from checkmate.runtime.protocol import Settings
from checkmate.trial.judgement import find_pattern_block
from checkmate.trial.rewriting import require_alike
from checkmate.trial.runs import Trial
from onnx_models import deep_mlp, save, save_proto
from test_cli import checkmate
from trials import Solved, judge_trial, run, solve_file

DIMS = {"N": 512}


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Solved:
    path = save(tmp_path_factory.mktemp("mlp"), deep_mlp(6))
    return solve_file(path, 80, arena=True, dims=DIMS)


@pytest.fixture(scope="module")
def trial(solved: Solved) -> Trial:
    return run(solved)


def write(solved: Solved, proto: onnx.ModelProto, folder: Path) -> Solved:
    """Return ``solved`` with ``proto`` for its rewritten model."""
    path = folder / "written.onnx"
    path.write_bytes(proto.SerializeToString())
    return replace(solved, rewriting=replace(solved.rewriting, written=path))


def rewrite(solved: Solved, folder: Path) -> onnx.ModelProto:
    r = solved.rewriting
    return onnx.load_from_string(render_model(r.model, r.schedule, folder / "m.onnx", r.fences))


def test_a_plan_passes_in_every_run(solved: Solved, trial: Trial) -> None:
    judgement = judge_trial(solved, trial)
    assert judgement.failures == ()
    rows = [(row.manner, row.run, row.numbers, row.order, row.verdict) for row in judgement.rows]
    assert rows == [
        ("scheduled", 1, "equal", "as scheduled", "pass"),
        ("scheduled", 2, "equal", None, "pass"),
        ("scheduled", 3, "equal", None, "pass"),
        ("default", 1, "equal", "as scheduled", "pass"),
        ("default", 2, "equal", None, "reported"),
        ("default", 3, "equal", None, "reported"),
        ("default-no-pattern", 1, "equal", "as scheduled", "pass"),
        ("default-no-pattern", 2, "equal", None, "pass"),
        ("default-no-pattern", 3, "equal", None, "pass"),
    ]
    assert {row.allowed_nbytes for row in judgement.rows if row.verdict == "pass"} == {
        solved.record.budget_nbytes
    }


def test_the_arena_of_the_budget_holds_the_rewritten_graph_and_not_the_original(
    solved: Solved, trial: Trial
) -> None:
    judgement = judge_trial(solved, trial)
    proof = judgement.proof
    assert proof is not None
    assert proof.is_planned
    assert proof.is_original_too_large
    assert [(row.graph, row.verdict) for row in judgement.proof_rows] == [
        ("rewritten", "pass"),
        ("original", "pass"),
    ]
    assert proof.refusal is None
    assert proof.original_refusal is not None
    assert "more than the arena has together" in proof.original_refusal


def test_one_byte_less_than_a_peak_is_not_allowed(solved: Solved, trial: Trial) -> None:
    rows = judge_trial(solved, trial).rows
    peaks = [row.peak_nbytes for row in rows if row.verdict == "pass"]
    assert None not in peaks
    budget_nbytes = max(peak for peak in peaks if peak is not None) - 1
    judgement = judge_trial(solved, trial, budget_nbytes)
    failed = [(row.manner, row.run) for row in judgement.rows if row.verdict == "fail"]
    above = [(row.manner, row.run) for row in rows
             if row.verdict == "pass" and row.peak_nbytes == budget_nbytes + 1]  # fmt: skip
    assert failed == above
    assert len(judgement.failures) == len(failed) > 0
    assert all("1 B above what is allowed" in line for line in judgement.failures)
    assert judge_trial(solved, trial, budget_nbytes + 1).failures == ()


def test_memory_patterns_are_measured_and_not_judged(solved: Solved, trial: Trial) -> None:
    block = find_pattern_block(trial)
    assert block is not None
    first_nbytes, later_nbytes = block
    assert first_nbytes < later_nbytes
    assert first_nbytes <= solved.record.budget_nbytes


def test_a_file_without_its_fences_does_not_pass_under_default_options(
    solved: Solved, tmp_path: Path
) -> None:
    r = solved.rewriting
    bare = onnx.load_from_string(render_model(r.model, r.schedule, tmp_path / "m.onnx", "none"))
    for node in bare.graph.node:
        kept = [a for a in node.attribute if a.name != COPY_ATTRIBUTE]
        del node.attribute[:]
        node.attribute.extend(kept)
    stripped = write(solved, bare, tmp_path)
    judgement = judge_trial(stripped, run(stripped, ("default",)))
    row = judgement.rows[0]
    assert (row.order, row.verdict, row.numbers) == ("different", "fail", "equal")
    assert judgement.failures[0].startswith("default, run 1: onnxruntime ran '")
    assert any("B above what is allowed" in line for line in judgement.failures)


def test_two_nodes_that_trade_places_are_named(solved: Solved, tmp_path: Path) -> None:
    proto = rewrite(solved, tmp_path)
    moved = next(node for node in proto.graph.node if node.output[0] == "u6")
    nodes = [node for node in proto.graph.node if node != moved]
    # Without its fence, nothing holds it back.
    moved.input[0] = "w6"
    del proto.graph.node[:]
    proto.graph.node.extend([moved, *nodes])
    changed = write(solved, proto, tmp_path)
    judgement = judge_trial(changed, run(changed, ("scheduled",)))
    assert judgement.rows[0].order == "different"
    assert judgement.rows[0].numbers == "equal"
    assert f"onnxruntime ran {moved.name!r} where" in judgement.failures[0]


@pytest.mark.parametrize("manner", ["scheduled", "default"])
def test_other_numbers_do_not_pass(manner: str, solved: Solved, tmp_path: Path) -> None:
    proto = rewrite(solved, tmp_path)
    one = next(tensor for tensor in proto.graph.initializer if tensor.name == "one")
    one.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(one) + 0.001, "one"))
    changed = write(solved, proto, tmp_path)
    judgement = judge_trial(changed, run(changed, (manner,)))  # type: ignore[arg-type]
    assert judgement.rows[0].numbers == "different"
    assert judgement.rows[0].verdict == "fail"
    assert "6 outputs differ; the first is 'dw1'" in judgement.failures[0]


def let_original_vary(trial: Trial, names: tuple[str, ...]) -> Trial:
    return replace(trial, pairs=tuple(replace(pair, varying=names) for pair in trial.pairs))


@pytest.mark.parametrize(
    "case", [(1e-6, 0, "rounded"), (1e-6, 1, "different"), (1e-3, 0, "different")]
)
def test_what_the_original_does_not_repeat_is_judged_to_rounding(
    case: tuple[float, int, str],
    solved: Solved,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    error, left_out, numbers = case
    proto = rewrite(solved, tmp_path)
    one = next(tensor for tensor in proto.graph.initializer if tensor.name == "one")
    one.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(one) + np.float32(error), "one"))
    changed = write(solved, proto, tmp_path)
    exact = run(changed, ("scheduled",))
    assert judge_trial(changed, exact).rows[0].numbers == "different"
    names = tuple(found.name for found in exact.pairs[0].differences)
    assert len(names) == 6
    trial = let_original_vary(exact, names[left_out:])
    judgement = judge_trial(changed, trial)
    assert {row.numbers for row in judgement.rows} == {numbers}
    assert (judgement.failures == ()) == (numbers == "rounded")
    print_trial(trial, judgement, changed.record)
    assert f"{6 - left_out} outputs judged to rounding" in capsys.readouterr().err
    assert make_document(trial, judgement)["outputs_varying"] == list(names[left_out:])


def test_an_arena_that_is_too_small_is_a_failure_only_where_it_was_planned(
    solved: Solved, trial: Trial
) -> None:
    assert trial.proof is not None
    refused = replace(trial.proof, refusal="out of memory: op 'h1' asks for 1 B")
    planned = judge_trial(solved, replace(trial, proof=refused))
    assert planned.failures == (
        f"arena of {refused.limit_nbytes:,} B: the rewritten graph is out of memory:"
        " op 'h1' asks for 1 B",
    )
    free = judge_trial(solved, replace(trial, proof=replace(refused, is_planned=False)))
    assert free.failures == ()
    assert free.proof_rows[0].verdict == "reported"


def test_an_original_that_runs_where_it_cannot_is_a_failure(solved: Solved, trial: Trial) -> None:
    assert trial.proof is not None
    runs = replace(trial.proof, original_refusal=None)
    (failure,) = judge_trial(solved, replace(trial, proof=runs)).failures
    assert "the original runs in it, although it asks for more" in failure


def test_the_smallest_limit_is_found_and_what_is_below_it_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, "g (float[64, 64] x) => (float[64, 64] y) { a = Exp(x) y = Exp(a) }")
    specs = specify_inputs(read_model(path, {}))
    with LimitedRuns(specs, Settings(threads=1)) as runs:
        found = runs.find_smallest(path, 16 * 1024, 16 * 1024)
        assert found is not None
        assert 32 * 1024 <= found <= 32 * 1024 * 102 // 100
        small = Settings(threads=1, arena_limit_nbytes=32 * 1024 - 256)
        refusal = runs.find_refusal(path, small)
        assert refusal is not None
        assert "asks for 16,384 B" in refusal
        assert runs.find_refusal(path, replace(small, arena_limit_nbytes=32 * 1024)) is None
        assert runs.find_smallest(path, 4 * 1024, 4 * 1024) is None


def test_the_command_says_it_all_and_ends_with_seven_where_a_run_fails(tmp_path: Path) -> None:
    save(tmp_path, deep_mlp(6))
    solved = checkmate(
        "solve", "model.onnx", "--dim", "N=512", "--budget", "80%", "--costs", "flops", "-o",
        "s.json", "--onnx", "m.onnx", cwd=tmp_path,
    )  # fmt: skip
    assert solved.returncode == 0, solved.stderr
    proto = onnx.load(tmp_path / "m.onnx")
    one = next(tensor for tensor in proto.graph.initializer if tensor.name == "one")
    one.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(one) * 2, "one"))
    onnx.save(proto, tmp_path / "m.onnx")
    done = checkmate(
        "check", "model.onnx", "s.json", "--run", "--json", "--provider", "cpu", "--onnx",
        "m.onnx", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 7
    document = json.loads(done.stdout)
    assert document["outputs_equal"] is False
    assert document["order_equal"] is True
    assert [run["verdict"] for run in document["runs"]].count("fail") == 9
    assert len(document["failures"]) == 9
    assert document["memory_pattern"]["later_peak_nbytes"] > document["budget_nbytes"]
    assert [graph["graph"] for graph in document["arena"]["graphs"]] == ["rewritten", "original"]
    assert "set enable_mem_pattern = False" in done.stderr
    assert "FAIL recommended, run 1: 6 outputs differ" in done.stderr
    assert "error: the runs do not match the schedule in 9 ways" in done.stderr


def test_a_model_to_run_is_of_no_use_without_a_run(tmp_path: Path) -> None:
    done = checkmate("check", "model.onnx", "s.json", "--onnx", "m.onnx", cwd=tmp_path)
    assert done.returncode == 2
    assert "hint: add --run" in done.stderr


def test_a_file_with_other_ends_is_no_rewriting(tmp_path: Path) -> None:
    model = read_model(save(tmp_path, deep_mlp(2)), {"N": 4})
    other = onnx.load(model.path)
    del other.graph.output[-1]
    path = save_proto(tmp_path, other, "other.onnx")
    with pytest.raises(InputError, match="has other outputs than the model"):
        require_alike(model, path)
    path.write_text("no model")
    with pytest.raises(InputError, match="is not an ONNX model"):
        require_alike(model, path)
