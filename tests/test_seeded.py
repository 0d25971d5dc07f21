"""Random ops with a seed: on the CPU they may run again, and draw the same run after run."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from checkmate.cli.source import Asked, read_source
from checkmate.errors import NoneInSpaceError
from checkmate.onnxio.read import read_model
from checkmate.onnxio.seeding import find_seeded, free_seeded
from checkmate.onnxio.write import render_model
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.inputs import make_inputs
from onnx_models import save
from structure_runs import recompute_all
from test_cli import checkmate
from test_random_and_state import dropout_mlp
from trials import judge_trial, run, solve_file

RANDOM_OPS = {
    "Dropout": "a, k = Dropout <seed = 7> (x, ratio, yes)",
    "RandomNormalLike": "a = RandomNormalLike <seed = 7.0> (x)",
    "RandomUniformLike": "a = RandomUniformLike <seed = 7.0> (x)",
    "Bernoulli": "a = Bernoulli <seed = 7.0> (p)",
    "Multinomial": "c = Multinomial <sample_size = 8, seed = 7.0> (x) a = Cast <to = 1> (c)",
}


def open_session(content: bytes, *, plain: bool, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    options.enable_mem_pattern = False
    if plain:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def assert_equal_draws(
    one: bytes, other: bytes, feeds: dict[str, np.ndarray], *, plain: bool, threads: int
) -> None:
    """Run both five times in one session each; each run draws anew, and both the same."""
    sessions = [open_session(content, plain=plain, threads=threads) for content in (one, other)]
    known = {item.name for item in sessions[0].get_inputs()}
    fed = {name: feed for name, feed in feeds.items() if name in known}
    seen = set()
    for _ in range(5):
        expected, made = (session.run(None, fed) for session in sessions)
        for value, again in zip(expected, made, strict=True):
            np.testing.assert_array_equal(value, again)
        seen.add(b"".join(value.tobytes() for value in expected))
    assert len(seen) == 5


@pytest.mark.parametrize("plain", [True, False], ids=["recommended", "default"])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("call", RANDOM_OPS.values(), ids=RANDOM_OPS.keys())
def test_copies_of_an_op_with_a_seed_draw_the_same_run_after_run(
    tmp_path: Path, call: str, threads: int, plain: bool
) -> None:
    body = f"""g (float[16, 8] x, float[16, 8] p) => (float[16, 8] y, float[16, 8] z)
        <float ratio = {{0.5}}, bool yes = {{1}}> {{ {call} y = Exp(a) z = Mul(a, p) }}"""
    path = save(tmp_path, body)
    model = free_seeded(read_model(path, {}))
    assert all(op.recomputable for op in model.graph.ops)
    rng = np.random.default_rng(1)
    feeds = {name: rng.random((16, 8), "f4") for name in ("x", "p")}
    copies = recompute_all(model, "all").SerializeToString()
    assert_equal_draws(path.read_bytes(), copies, feeds, plain=plain, threads=threads)


@pytest.mark.parametrize("plain", [True, False], ids=["recommended", "default"])
def test_a_dropout_with_a_seed_is_recomputed_and_gradients_stay(
    tmp_path: Path, plain: bool
) -> None:
    path = save(tmp_path, dropout_mlp("<seed = 3>"))
    with pytest.raises(NoneInSpaceError):
        solve_file(path, 65, dims={"N": 512})
    found = solve_file(path, 65, dims={"N": 512}, provider="cpu", strategy="greedy")
    model, schedule = found.rewriting.model, found.plan.schedule
    counts = Counter(schedule.order)
    assert max(counts[op] for op in find_seeded(model)) > 1
    feeds = make_inputs(specify_inputs(model), 0)
    written = render_model(model, schedule, path, "all")
    assert_equal_draws(path.read_bytes(), written, feeds, plain=plain, threads=1)
    assert judge_trial(found, run(found, ("scheduled", "default"))).failures == ()


@pytest.mark.parametrize(
    ("call", "costs", "is_free"),
    [
        ("Dropout <seed = 3> (x, ratio, yes)", Asked({}, costs="flops", provider="cpu"), True),
        ("Dropout <seed = 3> (x, ratio, yes)", Asked({}, costs="flops"), False),
        ("Dropout(x, ratio, yes)", Asked({}, costs="flops", provider="cpu"), False),
        (
            "RandomNormal <shape = [4], seed = 1.0> ()",
            Asked({}, costs="flops", provider="cpu"),
            False,
        ),
        ("RandomNormalLike <seed = 1.0> (x)", Asked({}, costs="auto", provider="cpu"), True),
    ],
)
def test_a_seed_frees_an_op_where_the_run_is_on_the_cpu(
    tmp_path: Path, call: str, costs: Asked, is_free: bool
) -> None:
    path = save(
        tmp_path,
        f"""g (float[4] x) => (float[4] y)
            <float ratio = {{0.5}}, bool yes = {{1}}> {{ y = {call} }}""",
    )
    source = read_source(path, costs)
    assert source.problem.graph.ops[0].recomputable is is_free
    assert source.problem.costs.origin.provider == costs.provider.replace("auto", "")


def test_what_reads_what_is_written_over_runs_once_with_a_seed_too(tmp_path: Path) -> None:
    body = """g (float[2, 4] x, float[4] s, float[4] b, float[4] m, float[4] v)
        => (float[2, 4] y, float[4] z) {
            y, mean, var = BatchNormalization <training_mode = 1> (x, s, b, m, v)
            z = RandomNormalLike <seed = 1.0> (m)
        }"""
    model = free_seeded(read_model(save(tmp_path, body), {}))
    assert [op.recomputable for op in model.graph.ops] == [False, False]


def test_show_says_where_an_op_with_a_seed_may_run_again(tmp_path: Path) -> None:
    save(tmp_path, dropout_mlp("<seed = 3>"))
    common = ("show", "model.onnx", "--dim", "N=64", "--costs", "flops", "--json")
    anywhere = json.loads(checkmate(*common, cwd=tmp_path).stdout)
    assert {pin["reason"] for pin in anywhere["pinned"]} == {"random, with a seed"}
    assert "say --provider cpu" in "".join(anywhere["notes"])
    on_cpu = json.loads(checkmate(*common, "--provider", "cpu", cwd=tmp_path).stdout)
    assert on_cpu["pinned"] == []
    assert on_cpu["pinned_ops"] == 0
    assert "on the CPU, and there alone" in "".join(on_cpu["notes"])


def test_a_schedule_for_the_cpu_is_checked_as_one_and_others_are_not(tmp_path: Path) -> None:
    save(tmp_path, dropout_mlp("<seed = 3>"))
    solve = ("solve", "model.onnx", "--dim", "N=512", "--costs", "flops", "--optimize", "none")
    solve += ("--provider", "cpu", "--budget", "65%", "--no-arena", "-o", "s.json")
    solve += ("--strategy", "greedy")
    solved = checkmate(*solve, cwd=tmp_path)
    assert solved.returncode == 0, solved.stderr
    checked = checkmate("check", "model.onnx", "s.json", "--run", cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr
    document = json.loads((tmp_path / "s.json").read_text())
    document["costs"]["provider"] = ""
    (tmp_path / "any.json").write_text(json.dumps(document))
    refused = checkmate("check", "model.onnx", "any.json", cwd=tmp_path)
    assert refused.returncode != 0
    assert "Dropout" in refused.stderr


def test_a_schedule_of_a_problem_exported_for_the_cpu_fits_its_model(tmp_path: Path) -> None:
    save(tmp_path, dropout_mlp("<seed = 3>").replace("[N, 64]", "[512, 64]"))
    common = ("--costs", "flops", "--optimize", "none", "--provider", "cpu")
    done = checkmate("export", "model.onnx", *common, "-o", "p.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    budget = ("--budget", "65%", "--strategy", "greedy", "-o", "s.json")
    done = checkmate("solve", "p.json", *budget, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    shown = checkmate("check", "model.onnx", "s.json", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
