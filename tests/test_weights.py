"""Models that keep weights in other files: found, referred to, copied, and never read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from checkmate.cli.main import main
from checkmate.onnxio.read import read_model
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.execute import RunOptions, run_model
from checkmate.runtime.protocol import Settings

SOURCE = Path(__file__).parent.parent / "src"
WEIGHT = np.array([1, 2], dtype=np.float32)
GIB = 2**30


def save_model(folder: Path, location: str = "w.bin", n_rows: int = 0) -> Path:
    """Save ``y = x + w`` (or a product with ``n_rows`` rows of weights) with ``w`` elsewhere."""
    text = "g (float[2] x) => (float[2] y) { a = Relu(x) b = Exp(a) y = Add(b, w) }"
    if n_rows:
        text = f"g (float[4, {n_rows}] x) => (float[4, 1024] y) {{ a = Relu(x) y = MatMul(a, w) }}"
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}')
    dims = [n_rows, 1024] if n_rows else [2]
    weight = onnx.TensorProto(name="w", data_type=1, dims=dims)
    weight.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": location, "offset": 0, "length": 4 * np.prod(dims)}.items():
        weight.external_data.add(key=key, value=str(value))
    proto.graph.initializer.append(weight)
    folder.mkdir(exist_ok=True)
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def save_weight(path: Path) -> None:
    path.write_bytes(WEIGHT.tobytes())


def solve(*arguments: object) -> int:
    """Run ``solve`` and return its exit code."""
    command = ["checkmate", "solve", *map(str, arguments), "--budget", "100%", "--costs", "flops"]
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr(sys, "argv", command)
        main()
    return int(ended.value.code or 0)


def run(path: Path) -> list[float]:
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    y: list[float] = session.run(None, {"x": np.zeros(2, dtype=np.float32)})[0].tolist()
    return y


def test_without_names_the_model_is_written_beside_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = save_model(tmp_path / "sub")
    save_weight(tmp_path / "sub" / "w.bin")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert solve(Path("..") / "sub" / model.name) == 0
    assert run(tmp_path / "sub" / "model.scheduled.onnx") == [2, 3]


def test_a_folder_above_refers_to_the_weights_below(tmp_path: Path) -> None:
    model = save_model(tmp_path / "sub")
    save_weight(tmp_path / "sub" / "w.bin")
    above = tmp_path / "out.onnx"
    assert solve(model, "--onnx", above) == 0
    assert run(above) == [2, 3]
    assert not (tmp_path / "w.bin").exists()


def test_a_third_folder_needs_a_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = save_model(tmp_path / "sub", "data/w.bin")
    (tmp_path / "sub" / "data").mkdir()
    save_weight(tmp_path / "sub" / "data" / "w.bin")
    third = tmp_path / "third" / "out.onnx"
    third.parent.mkdir()
    assert solve(model, "--onnx", third) == 2
    assert "--copy-weights" in capsys.readouterr().err
    assert not list(third.parent.iterdir())
    for _ in range(2):
        assert solve(model, "--onnx", third, "--copy-weights") == 0
        assert run(third) == [2, 3]
        assert (third.parent / "data" / "w.bin").read_bytes() == WEIGHT.tobytes()


def test_a_copy_never_takes_the_place_of_another_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = save_model(tmp_path / "sub")
    save_weight(tmp_path / "sub" / "w.bin")
    third = tmp_path / "third" / "out.onnx"
    third.parent.mkdir()
    (third.parent / "w.bin").write_text("precious")
    assert solve(model, "--onnx", third, "--copy-weights") == 2
    assert "is not the copy of" in capsys.readouterr().err
    assert (third.parent / "w.bin").read_text() == "precious"
    assert not third.exists()


def test_a_link_to_a_model_finds_the_weights_of_the_model(tmp_path: Path) -> None:
    model = save_model(tmp_path / "sub")
    save_weight(tmp_path / "sub" / "w.bin")
    link = tmp_path / "link.onnx"
    link.symlink_to(model)
    out = tmp_path / "sub" / "out.onnx"
    assert solve(link, "--onnx", out) == 0
    assert run(out) == [2, 3]
    result = run_model(link, specify_inputs(read_model(link, {})), RunOptions(Settings(threads=1)))
    assert result.executed


def test_missing_weights_are_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = save_model(tmp_path)
    assert solve(model, "--onnx", tmp_path / "out.onnx") == 0
    assert "w.bin', with weights of the model, is not there" in capsys.readouterr().err
    (tmp_path / "third").mkdir()
    assert solve(model, "--onnx", tmp_path / "third" / "out.onnx", "--copy-weights") == 3


def test_weights_that_end_too_early_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = save_model(tmp_path)
    (tmp_path / "w.bin").write_bytes(b"1234567")
    assert solve(model, "--onnx", tmp_path / "out.onnx") == 3
    assert "go on to byte 8" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("offset", "-4", "with offset '-4', which is no number of bytes"),
        ("offset", "abc", "with offset 'abc', which is no number of bytes"),
        ("offset", "", "with offset '', which is no number of bytes"),
        ("offset", "٤", "with offset '٤', which is no number of bytes"),
        ("offset", "9" * 5000, "which is no number of bytes"),
        ("length", "-8", "with length '-8', which is no number of bytes"),
        ("length", "16", "has external data of length 16, but takes 8 B"),
    ],
)
def test_a_place_that_onnxruntime_refuses_is_refused(
    key: str, value: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save_model(tmp_path)
    save_weight(tmp_path / "w.bin")
    proto = onnx.load(path, load_external_data=False)
    for entry in proto.graph.initializer[0].external_data:
        entry.value = value if entry.key == key else entry.value
    path.write_bytes(proto.SerializeToString())
    assert solve(path, "--onnx", tmp_path / "out.onnx") == 3
    assert said in capsys.readouterr().err
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        ort.InferenceSession(path, providers=["CPUExecutionProvider"])


MEASURE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
"""A process of its own: the peak of a child is at least what its parent held when it began."""


def test_three_gigabytes_of_weights_are_not_read(tmp_path: Path) -> None:
    n_rows = 3 * GIB // 4096
    model = save_model(tmp_path, n_rows=n_rows)
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(3 * GIB)
    out = tmp_path / "out.onnx"
    command = [
        sys.executable, "-m", "checkmate", "solve", str(model), "--budget", "100%", "--costs",
        "flops", "--onnx", str(out), "--json",
    ]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    measured = subprocess.run(
        [sys.executable, "-c", MEASURE, *command], capture_output=True, env=environment, check=True
    )
    document, peak_kib = map(json.loads, measured.stdout.splitlines())
    assert document["peak_nbytes"] > 3 * GIB
    assert peak_kib < 400 * 1024
    assert out.stat().st_size < 10_000
    weight = onnx.load(out, load_external_data=False).graph.initializer[0]
    assert {entry.key: entry.value for entry in weight.external_data}["location"] == "w.bin"


def test_a_costs_file_overwrites_no_weights(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[4] x) => (float[4] y) { y = Add(x, w) }'
    )
    tensor = onnx.TensorProto(name="w", data_type=1, dims=[4], data_location=1)
    tensor.external_data.add(key="location", value="w.bin")
    model.graph.initializer.append(tensor)
    onnx.save(model, tmp_path / "m.onnx")
    (tmp_path / "w.bin").write_bytes(b"weights of 16 B.")
    asked = ["profile", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "w.bin")]
    done = subprocess.run(
        [sys.executable, "-m", "checkmate", *asked], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "is the input" in done.stderr
    assert (tmp_path / "w.bin").read_bytes() == b"weights of 16 B."
