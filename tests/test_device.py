"""The device that sessions really get."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from checkmate.errors import DeviceError
from checkmate.runtime.device import probe_device

HAS_DRIVER = Path("/proc/driver/nvidia/version").exists()


def test_the_cpu_has_a_name_a_size_a_version_and_no_notice() -> None:
    device = probe_device("cpu")
    assert device.provider == "cpu"
    assert device.name
    assert device.nbytes > 2**28
    assert device.onnxruntime.count(".") >= 2
    assert device.notice is None


@pytest.mark.skipif(HAS_DRIVER, reason="needs a machine without an NVIDIA driver")
def test_auto_takes_the_cpu_with_one_line_about_it_and_nothing_on_the_terminal(
    capfd: pytest.CaptureFixture[str],
) -> None:
    device = probe_device("auto")
    assert device.provider == "cpu"
    assert device.notice is not None
    assert "using the CPU" in device.notice
    assert "\n" not in device.notice
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(HAS_DRIVER, reason="needs a machine without an NVIDIA driver")
def test_cuda_without_a_driver_is_an_error_that_says_what_is_missing() -> None:
    with pytest.raises(DeviceError, match=r"NVIDIA driver|built without it") as caught:
        probe_device("cuda")
    assert caught.value.exit_code == 6
    assert "--provider cpu" in str(caught.value.hint)


@pytest.mark.skipif(not HAS_DRIVER, reason="needs an NVIDIA driver")
def test_auto_takes_cuda_where_it_works() -> None:
    assert probe_device("auto").provider in ("cuda", "cpu")


def test_the_parent_does_not_import_onnxruntime() -> None:
    program = (
        "import sys; import checkmate.runtime.device, checkmate.runtime.execute,"
        " checkmate.profiler.profile; sys.exit('onnxruntime' in sys.modules)"
    )
    source = str(Path(__file__).parent.parent / "src")
    command = [sys.executable, "-c", program]
    assert subprocess.run(command, env={"PYTHONPATH": source}, check=False).returncode == 0
