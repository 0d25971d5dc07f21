"""A budget of the whole device, and the memory that a container allows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from checkmate.cli.main import program
from checkmate.errors import CheckmateError, DeviceError, UsageError
from checkmate.runtime.cgroup import find_limit_nbytes
from checkmate.runtime.device import (
    RESERVE_NBYTES,
    Device,
    count_memory_nbytes,
    count_whole_budget_nbytes,
)
from onnx_models import TRAINING_MLP, save


def solve(*arguments: str | Path) -> tuple[dict[str, object], str]:
    """Return the document and the notes of a solve; raise what it raises."""
    result = CliRunner().invoke(program, ["solve", *map(str, arguments), "--json"])
    if isinstance(result.exception, CheckmateError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout), result.stderr


def test_the_whole_device_is_its_memory_less_the_reserve() -> None:
    device = Device("cuda", "a device", RESERVE_NBYTES + 5, "1.2.3")
    assert count_whole_budget_nbytes(device) == 5


def test_a_device_no_larger_than_the_reserve_has_no_budget() -> None:
    with pytest.raises(DeviceError, match="kept in reserve"):
        count_whole_budget_nbytes(Device("cuda", "a device", RESERVE_NBYTES, "1.2.3"))


def test_a_budget_of_the_device_is_echoed_with_the_reserve(tmp_path: Path) -> None:
    path = save(tmp_path, TRAINING_MLP)
    arguments = ("--dim", "N=64", "--costs", "flops", "--provider", "cpu")
    document, notes = solve(path, *arguments, "--budget", "device", "-o", tmp_path / "s.json")
    assert document["budget_nbytes"] == count_memory_nbytes() - 2**30
    assert "of which 1.00 GiB are kept in reserve" in notes
    assert f"budget {document['budget_nbytes']:,} B" in notes


def test_costs_of_another_provider_are_for_another_device(tmp_path: Path) -> None:
    path, costs = save(tmp_path, TRAINING_MLP), tmp_path / "costs.json"
    profiled = ["profile", str(path), "--dim", "N=8", "--provider", "cpu", "-o", str(costs)]
    assert CliRunner().invoke(program, profiled).exit_code == 0
    measured = costs.read_text()
    assert '"provider": "cpu"' in measured
    costs.write_text(measured.replace('"provider": "cpu"', '"provider": "cuda"'))
    with pytest.raises(UsageError, match=r"measured on cuda .* this machine is cpu"):
        solve(path, "--dim", "N=8", "--costs", costs, "--provider", "cpu", "--budget", "device")


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_without_control_groups_there_is_no_limit(tmp_path: Path) -> None:
    assert find_limit_nbytes(tmp_path) is None


def test_the_smallest_limit_of_a_group_and_those_above_it_holds(tmp_path: Path) -> None:
    write(tmp_path, "proc/self/cgroup", "0::/a/b\n")
    write(tmp_path, "sys/fs/cgroup/a/b/memory.max", "3000\n")
    write(tmp_path, "sys/fs/cgroup/a/memory.max", "2000\n")
    write(tmp_path, "sys/fs/cgroup/memory.max", "max\n")
    assert find_limit_nbytes(tmp_path) == 2000


def test_within_a_container_the_limit_is_at_the_root_of_what_is_mounted(tmp_path: Path) -> None:
    write(tmp_path, "proc/self/cgroup", "0::/docker/1234\n")
    write(tmp_path, "sys/fs/cgroup/memory.max", "1000\n")
    assert find_limit_nbytes(tmp_path) == 1000


def test_control_groups_of_the_first_version_count_and_their_largest_number_is_no_limit(
    tmp_path: Path,
) -> None:
    write(tmp_path, "proc/self/cgroup", "5:devices:/d\n4:cpu,memory:/a\n")
    write(tmp_path, "sys/fs/cgroup/memory/a/memory.limit_in_bytes", "4096\n")
    write(tmp_path, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    write(tmp_path, "sys/fs/cgroup/memory/d/memory.limit_in_bytes", "1\n")
    assert find_limit_nbytes(tmp_path) == 4096
