"""What ops cost among the others, in runs of the whole graph."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from checkmate.costs import Costs, Origin
from checkmate.onnxio.model import Model
from checkmate.onnxio.read import read_model
from checkmate.onnxio.write import place_planned
from checkmate.problem import Problem
from checkmate.profiler.among import share
from checkmate.profiler.profile import Profile, ProfileOptions, profile_model
from checkmate.profiler.signature import Signature, sign
from checkmate.profiler.specify import specify_inputs
from checkmate.profiler.surroundings import survey
from checkmate.runtime.device import Device
from checkmate.runtime.execute import Watched, watch_model
from checkmate.runtime.protocol import Settings, WatchTask
from checkmate.runtime.worker import Worker
from onnx_models import TRAINING_MLP, save

DEVICE = Device("cpu", "a processor", 2**34, "1.31.1")
QUICK = ProfileOptions(threads=1, max_runs=1, max_ns=0)

CHAIN = """chain (float[4] x) => (float[4] z)
{
    a = Exp(x)
    b = Exp(a)
    [slow] c = Tanh(b)
    z = Neg(c)
}"""


def profile(model: Model, options: ProfileOptions = QUICK) -> Profile:
    return profile_model(model, DEVICE, options, lambda _: None)


def sign_all(model: Model) -> list[Signature]:
    around = survey(model)
    return [sign(node, around) for node in model.nodes]


def watch(model: Model) -> Watched:
    task = WatchTask("", Settings(threads=1), specify_inputs(model), 0, 2, 3, 10**9)
    with Worker() as worker, place_planned(model, is_named=True) as path:
        return watch_model(path, task, worker)


def test_ops_share_the_median_of_the_runs_by_what_they_take_in_them(tmp_path: Path) -> None:
    model = read_model(save(tmp_path, CHAIN), {})
    first, second, slow, last = (op.name for op in model.graph.ops)
    watched = Watched((2000, 900, 1000), {first: 1, second: 3, slow: 15, last: 1})
    alone = Problem(model.graph, Costs((7,) * 4, (0,) * 4, Origin("profile")))
    signatures = sign_all(model)
    times_ns = share(model, signatures, alone, watched)
    # Both Exp are one kind of op.
    assert [times_ns[signature] for signature in signatures] == [100, 100, 750, 50]


def test_what_the_profile_does_not_tell_apart_keeps_its_part(tmp_path: Path) -> None:
    model = read_model(save(tmp_path, CHAIN), {})
    first, second, _, last = (op.name for op in model.graph.ops)
    watched = Watched((600,), {first: 10, second: 10, last: 10})
    alone = Problem(model.graph, Costs((20, 20, 60, 20), (0,) * 4, Origin("profile")))
    signatures = sign_all(model)
    times_ns = share(model, signatures, alone, watched)
    assert [times_ns[signature] for signature in signatures] == [100, 100, 300, 100]


def test_every_op_of_a_graph_is_timed_in_it(tmp_path: Path) -> None:
    model = read_model(save(tmp_path, TRAINING_MLP), {"N": 256})
    watched = watch(model)
    assert set(watched.ops_ns) == {op.name for op in model.graph.ops}
    assert len(watched.times_ns) == 6
    assert min(watched.ops_ns.values()) > 0


def test_an_op_that_has_the_name_of_one_in_a_body_is_left_out(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        """twice (float[4] x, bool c) => (float[4] z) {
            [same] a = Exp(x)
            [choice] z = If (c)
              <then_branch = t () => (float[4] p) { [same] p = Neg(a) },
               else_branch = e () => (float[4] q) { [same] q = Abs(a) }>
        }""",
    )
    assert set(watch(read_model(path, {})).ops_ns) == {"choice"}


def test_a_profile_says_times_among_the_others_and_remembers_them(tmp_path: Path) -> None:
    model = read_model(save(tmp_path, TRAINING_MLP), {"N": 256})
    options = replace(QUICK, cache_folder=tmp_path / "cache")
    first = profile(model, options)
    alone = profile(model, replace(options, among=False))
    assert first.alone == ""
    assert alone.alone == "not asked for"
    assert first.costs.time_ns != alone.costs.time_ns
    assert first.costs.workspace_nbytes == alone.costs.workspace_nbytes
    assert profile(model, options).costs == first.costs


def test_among_others_an_op_is_remembered_with_them(tmp_path: Path) -> None:
    options = replace(QUICK, cache_folder=tmp_path / "cache")
    model = read_model(save(tmp_path, CHAIN), {})
    profile(model, options)
    n_known = len(list((tmp_path / "cache").rglob("*.json")))
    other = read_model(save(tmp_path, CHAIN.replace("b = Exp(a)", "b = Exp(x)")), {})
    assert profile(other, options).n_remembered == 3
    assert len(list((tmp_path / "cache").rglob("*.json"))) == n_known + 3


def test_a_graph_that_does_not_run_keeps_the_times_of_ops_alone(tmp_path: Path) -> None:
    body = """g (float[4] x, int64[2] n) => (float[2] z) <int64 far = {100}> {
        beyond = Add(n, far)
        z = Gather(x, beyond)
    }"""
    model = read_model(save(tmp_path, body), {})
    assert profile(model).alone.startswith("onnxruntime failed: ")


def test_a_graph_larger_than_the_memory_is_not_run(tmp_path: Path) -> None:
    body = "g (float[512, 512] x, float[4194304, 524288] v) => (float[4194304, 524288] z)"
    model = read_model(save(tmp_path, body + " { y = Exp(x) z = Exp(v) }"), {})
    assert profile(model).alone.startswith("it needs 16.00 TiB, and there are ")
