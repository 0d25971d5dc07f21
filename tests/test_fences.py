"""Training graphs under onnxruntime's default session options: order, copies, numbers, peak."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from checkmate.onnxio.fence_maker import PREFIX
from checkmate.onnxio.read import read_model
from checkmate.onnxio.rewrite import COPY_ATTRIBUTE
from checkmate.onnxio.windows import FENCES, Fences
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.execute import RunOptions, run_model
from checkmate.runtime.protocol import Settings
from default_runs import LEVELS, feeds_of, name_copies, rewrite, run
from onnx_models import TRAINING_MLP, save

MLP_ORDER = "h1 a1 h2 a2 y shape loss dy a2t dw3 w3t da2 m2 dh2 h1 a1 a1t dw2 w2t da1 m1 dh1 xt dw1"

SINES = """
sines (float[N] a) => (float loss, float[N] ga) {
    b = Sin(a)
    c = Sin(b)
    sc = Sin(c)
    cb = Cos(b)
    d = Add(sc, cb)
    sd = Sin(d)
    ca = Cos(a)
    e = Add(sd, ca)
    loss = ReduceSum <keepdims = 0> (e)
    gd = Cos(d)
    cc = Cos(c)
    gc = Mul(gd, cc)
    cb2 = Cos(b)
    gb1 = Mul(gc, cb2)
    sb2 = Sin(b)
    gb2 = Mul(gd, sb2)
    gb = Sub(gb1, gb2)
    ca2 = Cos(a)
    ga1 = Mul(gb, ca2)
    sa2 = Sin(a)
    ga = Sub(ga1, sa2)
}
"""
SINES_ORDER = "b c sc cb d sd ca e loss gd b c cc gc cb2 gb1 b sb2 gb2 gb ca2 ga1 sa2 ga"

DIAMOND = """
diamond (float[N] x) => (float y, float z, float u, float v) {
    big = Exp(x)
    shape = Shape(big)
    y = ReduceMax <keepdims = 0> (big)
    large = Sin(big)
    z = ReduceSum <keepdims = 0> (large)
    next = Cos(x)
    more = Sin(next)
    u = ReduceSum <keepdims = 0> (more)
    ones = ConstantOfShape <value = float[1] {1.0}> (shape)
    v = ReduceSum <keepdims = 0> (ones)
}
"""
DIAMOND_ORDER = "big shape y large z next more u ones v"


def measure_default_peak(path: Path, specs_of: Path, **dims: int) -> int:
    """Return the peak of the first run under default session options."""
    specs = specify_inputs(read_model(specs_of, dims))
    options = RunOptions(Settings(threads=1, manner="default"))
    peak_nbytes = run_model(path, specs, options).peak_nbytes
    assert peak_nbytes is not None
    return peak_nbytes


def write_rewritten(path: Path, order: str, fences: Fences, **dims: int) -> Path:
    rewritten = path.parent / f"{fences}.onnx"
    rewritten.write_bytes(rewrite(path, order, fences, **dims))
    return rewritten


@pytest.mark.parametrize("level", LEVELS)
def test_recomputes_stay_behind_what_comes_before_them(level: str, tmp_path: Path) -> None:
    path = save(tmp_path, TRAINING_MLP)
    ran = run(rewrite(path, MLP_ORDER, "run", N=32), feeds_of(path, N=32), tmp_path, level)
    expected = name_copies(MLP_ORDER)
    start = expected.index("h1__recompute1")
    before = [name for name in ran.executed if name in expected[:start]]
    assert ran.executed[: len(before)] == tuple(before)
    assert {"h1__recompute1", "a1__recompute1"} < set(ran.executed[len(before) :])


@pytest.mark.parametrize("level", ["DISABLE_ALL", "ENABLE_BASIC"])
def test_with_all_fences_the_executed_order_is_the_schedule(level: str, tmp_path: Path) -> None:
    path = save(tmp_path, TRAINING_MLP)
    ran = run(rewrite(path, MLP_ORDER, "all", N=32), feeds_of(path, N=32), tmp_path, level)
    assert ran.executed == name_copies(MLP_ORDER, without="shape")


def test_with_all_fences_only_what_is_fused_leaves_the_schedule(tmp_path: Path) -> None:
    path = save(tmp_path, TRAINING_MLP)
    ran = run(rewrite(path, MLP_ORDER, "all", N=32), feeds_of(path, N=32), tmp_path)
    assert ran.executed == name_copies(MLP_ORDER, without="shape a2t w3t a1t w2t xt")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("fences", FENCES)
def test_numbers_are_the_same_to_the_bit(fences: Fences, level: str, tmp_path: Path) -> None:
    path = save(tmp_path, TRAINING_MLP)
    feeds = feeds_of(path, N=32)
    before = run(path.read_bytes(), feeds, tmp_path, level)
    after = run(rewrite(path, MLP_ORDER, fences, N=32), feeds, tmp_path, level)
    assert after.outputs == before.outputs


@pytest.mark.parametrize("level", ["ENABLE_BASIC", "ENABLE_ALL"])
@pytest.mark.parametrize(("fences", "survives"), [("none", False), ("run", True), ("all", True)])
def test_fences_alone_keep_equal_nodes_apart(
    fences: Fences, survives: bool, level: str, tmp_path: Path
) -> None:
    path = save(tmp_path, TRAINING_MLP)
    model = onnx.load_from_string(rewrite(path, MLP_ORDER, fences, N=32))
    for node in model.graph.node:
        kept = [a for a in node.attribute if a.name != COPY_ATTRIBUTE]
        del node.attribute[:]
        node.attribute.extend(kept)
    ran = run(model.SerializeToString(), feeds_of(path, N=32), tmp_path, level)
    twice = {"h1", "h1__recompute1", "a1", "a1__recompute1"}
    assert (twice <= set(ran.executed)) == survives


@pytest.mark.parametrize("fences", ["run", "all"])
def test_recompute_saves_two_tensors_under_default_options(fences: Fences, tmp_path: Path) -> None:
    n = 1 << 18
    path = save(tmp_path, SINES)
    before_nbytes = measure_default_peak(path, path, N=n)
    rewritten = write_rewritten(path, SINES_ORDER, fences, N=n)
    after_nbytes = measure_default_peak(rewritten, path, N=n)
    assert after_nbytes <= before_nbytes - 2 * 4 * n + 1024


@pytest.mark.parametrize("is_typed", [False, True])
def test_with_all_fences_the_default_peak_is_the_planned_one(
    is_typed: bool, tmp_path: Path
) -> None:
    n = 1 << 18
    path = save(tmp_path, SINES.replace("N", str(n)))
    if is_typed:
        typed = onnx.shape_inference.infer_shapes(onnx.load(path))
        path.write_bytes(typed.SerializeToString())
    rewritten = write_rewritten(path, SINES_ORDER, "all")
    assert measure_default_peak(rewritten, path) == pytest.approx(5 * 4 * n, abs=1024)


def test_a_diamond_runs_in_the_order_of_its_schedule(tmp_path: Path) -> None:
    n = 1 << 18
    path = save(tmp_path, DIAMOND)
    content = rewrite(path, DIAMOND_ORDER, "all", N=n)
    ran = run(content, feeds_of(path, N=n), tmp_path)
    assert ran.executed == name_copies(DIAMOND_ORDER, without="shape")
    rewritten = write_rewritten(path, DIAMOND_ORDER, "all", N=n)
    # The Shape does not keep what it reads: the input and two tensors, as planned.
    assert measure_default_peak(rewritten, path, N=n) == pytest.approx(3 * 4 * n, abs=1024)
    assert measure_default_peak(path, path, N=n) > 4 * 4 * n


def test_the_default_peak_of_a_training_mlp_falls(tmp_path: Path) -> None:
    path = save(tmp_path, TRAINING_MLP)
    files = [path, *(write_rewritten(path, MLP_ORDER, f, N=4096) for f in ("none", "all"))]
    peaks = [measure_default_peak(file, path, N=4096) for file in files]
    assert peaks[2] < min(peaks[:2])


@pytest.mark.parametrize("fences", ["run", "all"])
def test_a_fenced_model_runs_with_other_sizes_than_it_was_solved_for(
    fences: Fences, tmp_path: Path
) -> None:
    path = save(tmp_path, TRAINING_MLP)
    content = rewrite(path, MLP_ORDER, fences, N=4)
    feeds = feeds_of(path, N=7)
    assert run(content, feeds, tmp_path).outputs == run(path.read_bytes(), feeds, tmp_path).outputs


def test_all_but_nodes_stays(tmp_path: Path) -> None:
    path = save(tmp_path, TRAINING_MLP)
    before = onnx.load(path)
    after = onnx.load_from_string(rewrite(path, MLP_ORDER, "all", N=4))
    assert any(node.name.startswith(PREFIX) for node in after.graph.node)
    del before.graph.node[:]
    del after.graph.node[:]
    assert after == before
