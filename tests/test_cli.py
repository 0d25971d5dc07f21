"""The command as scripts see it: exit codes, standard output, files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from builders import chain, op, problem
from checkmate.formats.problem_json import render_problem
from checkmate.onnxio.read import read_model
from onnx_models import DEEP_MLP, GRAPHS, TRAINING_MLP, save, save_proto

SOURCE = str(GRAPHS.parent / "src")
VGG = str(GRAPHS / "vgg16-tiny-bN.onnx")


def checkmate(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command in ``cwd`` with a cache folder of its own."""
    return subprocess.run(
        [sys.executable, "-m", "checkmate", *arguments],
        cwd=cwd,
        env=os.environ | {"XDG_CACHE_HOME": str(cwd / "cache"), "PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def solve_mlp(
    folder: Path, *options: str, costs: str = "flops"
) -> subprocess.CompletedProcess[str]:
    save(folder, DEEP_MLP)
    return checkmate(
        "solve", "model.onnx", "--dim", "N=512", "--costs", costs, *options, cwd=folder
    )


def list_files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "cache")


def test_a_solve_writes_a_schedule_and_a_model(tmp_path: Path) -> None:
    done = solve_mlp(tmp_path, "--budget", "95%")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert list_files(tmp_path) == ["model.onnx", "model.schedule.json", "model.scheduled.onnx"]
    document = json.loads((tmp_path / "model.schedule.json").read_text())
    assert document["peak_nbytes"] <= document["budget_nbytes"] < document["baseline_peak_nbytes"]
    assert document["time_ns"] >= document["bound_ns"] >= document["baseline_time_ns"]
    onnx.checker.check_model(tmp_path / "model.scheduled.onnx", full_check=True)


def test_standard_output_holds_one_document_and_nothing_else(tmp_path: Path) -> None:
    done = solve_mlp(tmp_path, "--budget", "95%", "--json", "-o", "s.json")
    document = json.loads(done.stdout)
    written = json.loads((tmp_path / "s.json").read_text())
    del written["instructions"]
    assert {key: document[key] for key in written} == written
    assert document["files"] == {"schedule": "s.json"}
    assert list_files(tmp_path) == ["model.onnx", "s.json"]


def test_the_exact_search_prints_nothing_on_standard_output(tmp_path: Path) -> None:
    done = solve_mlp(tmp_path, "--budget", "95%", "--strategy", "exact")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""


def test_equal_solves_write_equal_bytes(tmp_path: Path) -> None:
    contents = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        done = solve_mlp(tmp_path / name, "--budget", "95%", "--node-limit", "10")
        assert done.returncode == 0, done.stderr
        files = ("model.schedule.json", "model.scheduled.onnx")
        contents.append([(tmp_path / name / file).read_bytes() for file in files])
    assert contents[0] == contents[1]


def test_a_run_of_both_graphs_is_compared(tmp_path: Path) -> None:
    # Counted costs do not know the workspace that the run needs; measured costs do.
    solve_mlp(tmp_path, "--budget", "95%", costs="auto")
    done = checkmate("check", "model.onnx", "model.schedule.json", "--run", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["outputs_equal"] is True
    assert document["order_equal"] is True
    assert document["measured_peak_nbytes"] < document["measured_baseline_peak_nbytes"]


def test_a_profile_is_solved_elsewhere_and_verified_in_full(tmp_path: Path) -> None:
    save(tmp_path, DEEP_MLP)
    profile = ("profile", "model.onnx", "--dim", "N=512", "--optimize", "none")
    done = checkmate(*profile, "-o", "costs.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "costs of 37 ops" in done.stderr
    again = checkmate(*profile, "--json", cwd=tmp_path)
    assert json.loads(again.stdout)["remembered"] == json.loads(again.stdout)["signatures"]
    solved = checkmate(
        "solve", "model.onnx", "--dim", "N=512", "--budget", "95%", "--costs", "costs.json",
        "-o", "s.json", cwd=tmp_path,
    )  # fmt: skip
    assert solved.returncode == 0, solved.stderr
    assert json.loads((tmp_path / "s.json").read_text())["costs"]["source"] == "profile"
    checked = checkmate(
        "check", "model.onnx", "s.json", "--costs", "costs.json", "--json", cwd=tmp_path
    )
    assert json.loads(checked.stdout)["costs_verified"] is True


def test_costs_of_another_size_are_refused(tmp_path: Path) -> None:
    save(tmp_path, DEEP_MLP)
    checkmate("profile", "model.onnx", "--dim", "N=2", "-o", "costs.json", cwd=tmp_path)
    done = checkmate(
        "solve", "model.onnx", "--dim", "N=4", "--budget", "95%", "--costs", "costs.json",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 3
    assert "are for graph 'mlp' with digest" in done.stderr


def test_each_unit_is_another_budget_and_is_echoed(tmp_path: Path) -> None:
    budgets = ("10GB", "10GiB", "9.3GiB", "10976400000B", "75%")
    specs = [op(f"f{i}", f"f{i - 1}" if i else "", nbytes=2_475_000_000) for i in range(4)]
    specs += [op("sum", "f0 f1 f2 f3", nbytes=1)]
    large = problem(*specs, outputs="sum")
    (tmp_path / "p.json").write_text(render_problem(large))
    echoed = []
    for budget in budgets:
        done = checkmate("solve", "p.json", "--budget", budget, "-o", "s.json", cwd=tmp_path)
        echoed.append(next(line for line in done.stderr.splitlines() if "budget" in line))
    assert [line.removeprefix("budget ") for line in echoed] == [
        "10,000,000,000 B (9.313 GiB)",
        "10,737,418,240 B (10.000 GiB)",
        "9,985,798,963 B (9.300 GiB)",
        "10,976,400,000 B (10.223 GiB)",
        "7,425,000,000 B (6.915 GiB)",
    ]


def test_a_budget_one_byte_too_small_is_proved_infeasible(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(render_problem(chain(4, 2, 7, 1)))
    done = checkmate("solve", "p.json", "--budget", "9B", "-o", "s.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (tmp_path / "s.json").unlink()
    done = checkmate("solve", "p.json", "--budget", "8B", "-o", "s.json", cwd=tmp_path)
    assert done.returncode == 4
    assert "'op2' alone needs 9 B" in done.stderr
    assert "smallest budget known to work is 9 B (0.000 GiB), where op 'op2' binds" in done.stderr
    assert list_files(tmp_path) == ["p.json"]


def test_the_smallest_budget_is_solved_in(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(render_problem(chain(4, 2, 7, 1)))
    done = checkmate("solve", "p.json", "--budget", "min", "-o", "s.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "budget min: the smallest budget known to work is 9 B" in done.stderr
    assert "nothing fits in less" in done.stderr
    assert json.loads((tmp_path / "s.json").read_text())["budget_nbytes"] == 9


def test_a_strategy_that_finds_nothing_has_proved_nothing(tmp_path: Path) -> None:
    done = solve_mlp(tmp_path, "--budget", "95%", "--strategy", "keep-all")
    assert done.returncode == 5
    assert "error: the keep-all schedule needs" in done.stderr
    assert "smallest budget known to work" in done.stderr
    assert list_files(tmp_path) == ["model.onnx"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--budget", "8"), "has no unit"),
        (("--budget", "-1GiB"), "not a positive number"),
        (("--budget", "8Gib"), "unknown unit 'Gib'"),
        (("--budget", "eight"), "not a positive number"),
        (("--budget", "1GiB", "--dim", "N=0"), "above zero"),
        (("--budget", "1GiB", "--dim", "N"), "does not bind"),
        (("--budget", "1GiB", "--dim", "M=2"), "no input has a dimension 'M'"),
        (("--budget", "1GiB", "--gap", "-1"), "not a percentage"),
        (("--budget", "1GiB", "--time-limit", "5"), "with a unit"),
        (("--budget", "1GiB", "--strategy", "magic"), "'magic' is not one of"),
        (("--budget", "1GiB", "--node-limit", "0"), "0 is not in the range"),
        ((), "Missing option '--budget'"),
        (("--budget", "1GiB", "-o", VGG), "is the input"),
        (("--budget", "1GiB", "-o", "x", "--onnx", "x"), "is also the schedule"),
        (("--budget", "1GiB", "-o", "-", "--onnx", "-"), "not written to standard output"),
    ],
)
def test_a_value_that_cannot_be_meant_is_a_usage_error(
    tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    done = checkmate("solve", VGG, "--costs", "flops", *options, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    assert list_files(tmp_path) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"hello", "is not an ONNX model"),
        (b"{}", "no field 'format'"),
        (b'{"format": "checkmate.problem", "version": 9}', "version is 9"),
        (Path(VGG).read_bytes()[:20_000], "do not parse"),
    ],
)
def test_a_bad_model_file_is_an_input_error(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "bad.onnx").write_bytes(content)
    done = checkmate("solve", "bad.onnx", "--budget", "1GiB", cwd=tmp_path)
    assert done.returncode == 3
    assert message in done.stderr
    assert len(done.stderr.splitlines()) <= 2
    assert list_files(tmp_path) == ["bad.onnx"]


def test_paths_that_cannot_be_read_or_written_are_input_errors(tmp_path: Path) -> None:
    missing = checkmate("solve", "missing.onnx", "--budget", "1GiB", cwd=tmp_path)
    assert missing.returncode == 3
    assert "cannot read 'missing.onnx': No such file" in missing.stderr
    folder = checkmate("solve", ".", "--budget", "1GiB", cwd=tmp_path)
    assert folder.returncode == 3
    unwritable = checkmate(
        "solve", VGG, "--budget", "1GiB", "--dim", "N=2", "-o", "no/such/s.json", cwd=tmp_path
    )
    assert unwritable.returncode == 3
    assert "cannot write 'no/such/s.json'" in unwritable.stderr
    assert list_files(tmp_path) == []


def test_a_missing_dimension_is_an_input_error_with_the_option_to_give(tmp_path: Path) -> None:
    done = checkmate("solve", VGG, "--budget", "1GiB", "--costs", "flops", cwd=tmp_path)
    assert done.returncode == 3
    assert "hint: bind it with --dim N=VALUE" in done.stderr


def test_a_schedule_of_a_changed_model_is_refused_and_of_a_resaved_one_is_not(
    tmp_path: Path,
) -> None:
    solve_mlp(tmp_path, "--budget", "95%")
    proto = onnx.load(tmp_path / "model.onnx")
    proto.producer_name = "saved again"
    save_proto(tmp_path, proto, "resaved.onnx")
    assert checkmate("check", "resaved.onnx", "model.schedule.json", cwd=tmp_path).returncode == 0
    proto.graph.input[1].type.tensor_type.shape.dim[1].dim_value = 32
    proto.graph.input[2].type.tensor_type.shape.dim[0].dim_value = 32
    save_proto(tmp_path, proto, "changed.onnx")
    done = checkmate("check", "changed.onnx", "model.schedule.json", cwd=tmp_path)
    assert done.returncode == 3


def test_a_schedule_above_its_budget_does_not_pass(tmp_path: Path) -> None:
    solve_mlp(tmp_path, "--budget", "95%", "-o", "s.json")
    document = json.loads((tmp_path / "s.json").read_text())
    for change, message in (
        ({"budget_nbytes": 1_000}, "more than its budget of 1,000 B"),
        ({"time_ns": document["time_ns"] - 1}, "but simulates to"),
        ({"bound_ns": document["time_ns"] + 1}, "less than its bound"),
    ):
        (tmp_path / "t.json").write_text(json.dumps(document | change))
        done = checkmate("check", "model.onnx", "t.json", cwd=tmp_path)
        assert done.returncode == 7
        assert message in done.stderr


def test_a_schedule_that_fits_the_arena_says_so_and_is_held_to_it(tmp_path: Path) -> None:
    done = solve_mlp(tmp_path, "--budget", "90%", "--arena", "-o", "s.json")
    assert done.returncode == 0, done.stderr
    assert "fragmentation" in done.stderr
    document = json.loads((tmp_path / "s.json").read_text())
    peak = document["peak"]
    assert 0 < peak["fragmentation_nbytes"] <= document["budget_nbytes"] - document["peak_nbytes"]
    assert int(document["runtime"]["arena_limit_nbytes"]) < document["budget_nbytes"]
    for fragmentation_nbytes, code in ((peak["fragmentation_nbytes"], 0), (0, 7)):
        document["peak"] = peak | {"fragmentation_nbytes": fragmentation_nbytes}
        (tmp_path / "t.json").write_text(json.dumps(document))
        assert checkmate("check", "model.onnx", "t.json", cwd=tmp_path).returncode == code


def test_a_schedule_that_cannot_run_is_an_input_error(tmp_path: Path) -> None:
    solve_mlp(tmp_path, "--budget", "95%", "-o", "s.json")
    document = json.loads((tmp_path / "s.json").read_text())
    document["instructions"] = document["instructions"][1:]
    (tmp_path / "s.json").write_text(json.dumps(document))
    done = checkmate("check", "model.onnx", "s.json", cwd=tmp_path)
    assert done.returncode == 3
    assert "not in memory" in done.stderr


def test_cuda_without_a_gpu_fails_and_says_what_is_missing(tmp_path: Path) -> None:
    save(tmp_path, DEEP_MLP)
    done = checkmate("profile", "model.onnx", "--dim", "N=2", "--provider", "cuda", cwd=tmp_path)
    if done.returncode == 0:
        pytest.skip("there is a usable GPU here")
    assert done.returncode == 6
    assert "the CUDA provider is not usable" in done.stderr
    assert not list(tmp_path.glob("*.json"))


def test_auto_without_a_gpu_says_so_in_one_line_and_marks_the_costs(tmp_path: Path) -> None:
    save(tmp_path, DEEP_MLP)
    done = checkmate(
        "solve", "model.onnx", "--dim", "N=512", "--budget", "95%", "-o", "s.json", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    provider = json.loads((tmp_path / "s.json").read_text())["costs"]["provider"]
    assert (provider == "cpu") == ("using the CPU" in done.stderr)


def test_show_prints_what_is_kept_and_what_is_computed_again(tmp_path: Path) -> None:
    solve_mlp(tmp_path, "--budget", "95%", "-o", "s.json", "--optimize", "none")
    shown = checkmate("show", "s.json", "--model", "model.onnx", "--json", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    document = json.loads(shown.stdout)
    model = read_model(tmp_path / "model.onnx", {"N": 512})
    assert document["recomputes"].keys() <= {node.name for node in model.graph.ops}
    assert document["recomputes"]
    assert document["kept"]
    graph = checkmate("show", "model.onnx", "--dim", "N=512", "--json", cwd=tmp_path)
    assert json.loads(graph.stdout)["baseline_peak_nbytes"] == document["baseline_peak_nbytes"]


def test_no_output_destroys_an_input(tmp_path: Path) -> None:
    path = save(tmp_path, TRAINING_MLP)
    (tmp_path / "link.onnx").symlink_to(path)
    content = path.read_bytes()
    for arguments in (
        ("profile", "model.onnx", "--dim", "N=2", "-o", "model.onnx"),
        ("solve", "model.onnx", "--dim", "N=2", "--budget", "90%", "--onnx", "link.onnx"),
        ("solve", "model.onnx", "--dim", "N=2", "--budget", "90%", "--costs", "c", "-o", "c"),
    ):
        done = checkmate(*arguments, cwd=tmp_path)
        assert done.returncode == 2, done.stderr
        assert "is the input" in done.stderr
    assert path.read_bytes() == content


def test_a_problem_is_solved_and_its_schedule_checked(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(render_problem(chain(4, 2, 7, 1)))
    done = checkmate("solve", "p.json", "--budget", "9B", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert list_files(tmp_path) == ["p.json", "p.schedule.json"]
    assert checkmate("check", "p.json", "p.schedule.json", cwd=tmp_path).returncode == 0
    onnx_asked = checkmate("solve", "p.json", "--budget", "9B", "--onnx", "m.onnx", cwd=tmp_path)
    assert onnx_asked.returncode == 2
    ran = checkmate("check", "p.json", "p.schedule.json", "--run", cwd=tmp_path)
    assert ran.returncode == 2


def test_modules_in_the_users_folder_are_not_imported(tmp_path: Path) -> None:
    for name in ("numpy", "highspy", "signal", "math", "onnxruntime"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('shadowed')")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "checkmate", "solve", VGG, "--dim", "N=4", "--budget", "95%",
         "--costs", "flops", "--strategy", "exact", "-o", "s.json"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": SOURCE},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_standard_output_is_said_in_one_line(tmp_path: Path) -> None:
    save(tmp_path, TRAINING_MLP)
    done = subprocess.run(
        f"{sys.executable} -m checkmate show model.onnx --dim N=2 --json > /dev/full",
        shell=True, cwd=tmp_path, env=os.environ | {"PYTHONPATH": SOURCE},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    assert "No space left" in done.stderr


def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    done = subprocess.run(
        f"{sys.executable} -m checkmate --help | head -n 1",
        shell=True, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
