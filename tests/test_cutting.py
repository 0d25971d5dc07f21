"""Large weights stay in the file of a model, and come back whole when one is written."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import pytest

from checkmate.errors import CheckmateError, InputError
from checkmate.graph import OpId
from checkmate.liveness import insert_frees
from checkmate.onnxio.cutting import CUT_NBYTES, is_cut, render_whole
from checkmate.onnxio.doubts import find_complaint
from checkmate.onnxio.load import load_proto
from checkmate.onnxio.read import read_model
from checkmate.onnxio.write import render_model
from onnx_models import save_proto
from structure_runs import draw, run
from test_cli import checkmate

N_ROWS = CUT_NBYTES // 4 // 64
"""Of 64 floats each; so many are as large as what is not cut."""


def make_model(n_rows: int = N_ROWS + 1) -> onnx.ModelProto:
    """Return a model whose first weight has ``n_rows`` of 64 floats; the second is small."""
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 18]>
        g (float[8, {n_rows}] x, float[8, 64] r) => (float loss, float[{n_rows}, 64] dw) {{
            h = MatMul(x, w) a = Tanh(h) b = Mul(a, v) loss = ReduceSum <keepdims = 0> (b)
            c = Mul(b, r) d = Mul(c, a) xt = Transpose <perm = [1, 0]> (x) dw = MatMul(xt, d)
        }}""")
    rng = np.random.default_rng(0)
    for name, shape in (("w", (n_rows, 64)), ("v", (8, 64))):
        value = rng.random(shape, "f4")
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    return model


@pytest.mark.parametrize(("n_rows", "is_large"), [(N_ROWS, False), (N_ROWS + 1, True)])
def test_a_large_weight_is_cut_and_comes_back(tmp_path: Path, n_rows: int, is_large: bool) -> None:
    given = make_model(n_rows)
    path = save_proto(tmp_path, given)
    proto = load_proto(path)
    assert [is_cut(tensor) for tensor in proto.graph.initializer] == [is_large, False]
    assert (proto.ByteSize() < 2**13) is is_large
    assert onnx.ModelProto.FromString(render_whole(proto, path)) == given


def test_weights_that_are_not_raw_stay(tmp_path: Path) -> None:
    given = make_model()
    values = onnx.numpy_helper.to_array(given.graph.initializer[0])
    plain = onnx.helper.make_tensor("w", 1, values.shape, values.ravel())
    given.graph.initializer[0].CopyFrom(plain)
    path = save_proto(tmp_path, given)
    assert load_proto(path) == given


def test_a_rewritten_model_has_its_weights_and_the_numbers_of_the_original(tmp_path: Path) -> None:
    path = save_proto(tmp_path, make_model())
    model = read_model(path, {})
    ops = [OpId(i) for i in range(len(model.graph.ops))]
    schedule = insert_frees(model.graph, [*ops, *ops])
    written = render_model(model, schedule, tmp_path / "out.onnx", "all")
    feeds = draw(model.proto, {})
    made = run(onnx.ModelProto.FromString(written), feeds)
    for one, other in zip(run(onnx.load(path), feeds), made, strict=True):
        np.testing.assert_array_equal(one, other)


def test_neither_reading_nor_writing_holds_several_copies(tmp_path: Path) -> None:
    path = save_proto(tmp_path, make_model(N_ROWS * 256))
    nbytes = path.stat().st_size
    tracemalloc.start()
    proto = load_proto(path)
    assert tracemalloc.get_traced_memory()[1] < nbytes // 8
    render_whole(proto, path)
    assert tracemalloc.get_traced_memory()[1] < nbytes * 5 // 4
    tracemalloc.stop()


def test_a_file_that_changed_since_it_was_read_is_refused(tmp_path: Path) -> None:
    path = save_proto(tmp_path, make_model())
    proto = load_proto(path)
    content = path.read_bytes()
    for other in (content[: CUT_NBYTES // 2], content + b"\x32\x00", b"\x00" * len(content)):
        path.write_bytes(other)
        with pytest.raises(InputError, match="has changed since it was read"):
            render_whole(proto, path)
    path.unlink()
    with pytest.raises(InputError, match=r"cannot read .* again"):
        render_whole(proto, path)


@pytest.mark.parametrize("is_small", [True, False])
def test_marks_of_a_stranger_are_refused_or_ignored(tmp_path: Path, is_small: bool) -> None:
    given = make_model()
    tensor = given.graph.initializer[int(is_small)]
    for key, value in (("checkmate.offset", "0"), ("checkmate.length", "64"), ("of", "another")):
        tensor.external_data.add(key=key, value=value)
    path = save_proto(tmp_path, given)
    if is_small:
        with pytest.raises(InputError, match="marked as left in a file"):
            load_proto(path)
    else:
        whole = onnx.ModelProto.FromString(render_whole(load_proto(path), path))
        assert whole.graph.initializer[0].raw_data == tensor.raw_data
        assert [entry.key for entry in whole.graph.initializer[0].external_data] == ["of"]


def test_a_damaged_file_is_refused_as_before(tmp_path: Path) -> None:
    content = make_model().SerializeToString()
    path = tmp_path / "model.onnx"
    for end in [*range(CUT_NBYTES + 1, len(content), 37), len(content) - 1]:
        path.write_bytes(content[:end])
        with pytest.raises(CheckmateError):
            load_proto(path)


@pytest.mark.parametrize("position", [0, 2, 40, 300, -400, -40])
def test_damage_in_the_middle_is_refused_or_read_alike(tmp_path: Path, position: int) -> None:
    content = bytearray(make_model().SerializeToString())
    path = tmp_path / "model.onnx"
    for byte in range(256):
        content[position] = byte
        path.write_bytes(content)
        try:
            proto = load_proto(path)
        except CheckmateError:
            continue
        assert onnx.ModelProto.FromString(render_whole(proto, path)) == (
            onnx.ModelProto.FromString(bytes(content))
        )


def test_the_checker_is_asked_of_a_model_with_large_weights(tmp_path: Path) -> None:
    given = make_model()
    assert find_complaint(read_model(save_proto(tmp_path, given), {})) is None
    given.graph.node[1].name = given.graph.node[0].name = ""
    given.graph.node.append(onnx.helper.make_node("Tanh", ["h"], ["unread"], odd=1))
    complaint = find_complaint(read_model(save_proto(tmp_path, given), {}))
    assert complaint is not None
    assert "odd" in complaint


@pytest.mark.parametrize(
    ("options", "seeded"), [(("--optimize", "none"), False), ((), True)], ids=["plain", "optimized"]
)
def test_a_model_with_large_weights_is_solved_and_checked(
    tmp_path: Path, options: tuple[str, ...], seeded: bool
) -> None:
    given = make_model()
    if not seeded:
        given.graph.node.append(onnx.helper.make_node("RandomNormalLike", ["a"], ["drawn"]))
        given.graph.output.append(onnx.helper.make_tensor_value_info("drawn", 1, [8, 64]))
    save_proto(tmp_path, given)
    solve = ("solve", "model.onnx", "--budget", "200%", "--costs", "flops", "-o", "s.json")
    solved = checkmate(*solve, "--onnx", "m.onnx", *options, cwd=tmp_path)
    assert solved.returncode == 0, solved.stderr
    checked = checkmate("check", "model.onnx", "s.json", "--run", "--onnx", "m.onnx", cwd=tmp_path)
    assert "outputs differ" not in checked.stderr
    assert checked.returncode in (0, 7), checked.stderr
    written = {tensor.name: tensor for tensor in onnx.load(tmp_path / "m.onnx").graph.initializer}
    assert written["w"].raw_data == given.graph.initializer[0].raw_data
    assert not written["w"].external_data


def test_shapes_are_learned_from_a_run_with_large_weights(tmp_path: Path) -> None:
    given = make_model()
    given.graph.node.append(onnx.helper.make_node("NonZero", ["h"], ["where"]))
    given.graph.output.append(onnx.helper.make_tensor_value_info("where", 7, None))
    save_proto(tmp_path, given)
    shown = checkmate("show", "model.onnx", "--shapes-from-run", "--costs", "flops", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
