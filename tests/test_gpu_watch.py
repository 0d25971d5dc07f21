"""What the GPU check asks of the driver, against libraries that answer as a driver does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HAS_DRIVER = Path("/proc/driver/nvidia/version").exists()
pytestmark = [
    pytest.mark.skipif(HAS_DRIVER, reason="needs a machine without an NVIDIA driver"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler"),
]

DRIVER = """
#include <string.h>
int cuInit(unsigned flags) { return CODE; }
int cuDeviceGetCount(int *n) { *n = COUNT; return 0; }
int cuDeviceGet(int *device, int index) { *device = 7 + index; return 0; }
int cuDeviceGetName(char *name, int size, int device) { strcpy(name, "a GPU"); return 0; }
int cuDeviceTotalMem_v2(size_t *size, int device) { *size = (size_t)1 << 34; return 0; }
int cuDeviceGetPCIBusId(char *id, int size, int device) {
    strcpy(id, device == 7 ? "0000:41:00.0" : "0000:01:00.0");
    return 0;
}
"""
MANAGEMENT = """
#include <string.h>
static int n_looks, device;
int nvmlInit_v2(void) { return INIT_CODE; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = COUNT; return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **handle) {
    if (strcmp(id, "0000:41:00.0")) return 6;
    *handle = &device;
    return 0;
}
int nvmlDeviceGetMemoryInfo(void *handle, unsigned long long *memory) {
    if (handle != &device || ++n_looks == FAILING_LOOK) return 999;
    memory[0] = 1 << 30, memory[2] = 1000 + (n_looks == 3 ? 700 : 500 * (n_looks > 1));
    memory[1] = memory[0] - memory[2];
    return 0;
}
"""
WATCH = """
import json, time, gpu_watch
with gpu_watch.watch_device(gpu_watch.find_bus_id()) as seen:
    while len(seen.used_nbytes) < 4 and not seen.errors:
        time.sleep(0.01)
print(json.dumps(seen.count_added_nbytes()))
"""


def build(folder: Path, name: str, source: str, **numbers: int) -> None:
    defined = [f"-D{key}={number}" for key, number in numbers.items()]
    command = ["cc", "-shared", "-fPIC", "-w", *defined, "-x", "c", "-", "-o", str(folder / name)]
    subprocess.run(command, input=source, text=True, check=True)


def build_driver(folder: Path, n_devices: int, code: int = 0) -> None:
    build(folder, "libcuda.so.1", DRIVER, COUNT=n_devices, CODE=code)


def build_management(folder: Path, n_devices: int, failing_look: int = 0, code: int = 0) -> None:
    numbers = {"COUNT": n_devices, "FAILING_LOOK": failing_look, "INIT_CODE": code}
    build(folder, "libnvidia-ml.so.1", MANAGEMENT, **numbers)


def run(
    folder: Path, *arguments: str, visible: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python where the libraries in ``folder`` are those of the system."""
    paths = os.pathsep.join(str(ROOT / name) for name in ("src", "bench"))
    environment = os.environ | {"LD_LIBRARY_PATH": str(folder), "PYTHONPATH": paths}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    if visible is not None:
        environment["CUDA_VISIBLE_DEVICES"] = visible
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def find(folder: Path, visible: str | None = None) -> tuple[int, str]:
    done = run(folder, str(ROOT / "bench" / "gpu_watch.py"), visible=visible)
    return done.returncode, done.stdout.strip()


def test_without_a_driver_there_is_no_gpu(tmp_path: Path) -> None:
    assert find(tmp_path) == (1, "no GPU: neither the CUDA driver nor NVML knows one")


def test_the_driver_counts_gpus(tmp_path: Path) -> None:
    build_driver(tmp_path, 2)
    assert find(tmp_path) == (0, "GPU: the CUDA driver counts 2")


def test_a_gpu_is_there_where_only_nvml_knows_it(tmp_path: Path) -> None:
    build_driver(tmp_path, 0, code=803)
    build_management(tmp_path, 1)
    expected = "GPU: NVML counts 1, and the CUDA driver fails with error 803"
    assert find(tmp_path) == (0, expected)


def test_an_nvml_that_fails_knows_no_gpu(tmp_path: Path) -> None:
    build_management(tmp_path, 1, code=9)
    assert find(tmp_path)[0] == 1


def test_a_gpu_that_is_hidden_is_not_there(tmp_path: Path) -> None:
    build_driver(tmp_path, 0, code=100)
    build_management(tmp_path, 1)
    assert find(tmp_path)[0] == 0
    assert find(tmp_path, visible="")[0] == 1


def test_a_gpu_without_usable_cuda_fails_the_check(tmp_path: Path) -> None:
    build_driver(tmp_path, 1)
    done = run(tmp_path, str(ROOT / "bench" / "gpu_check.py"))
    report = json.loads(done.stdout)
    assert (done.returncode, report["passed"]) == (1, False)
    assert [row["step"] for row in report["rows"]] == ["probe"]
    (why,) = report["rows"][0]["errors"]
    assert why.startswith("there is a GPU (the CUDA driver counts 1), but the CUDA provider is not")


def test_memory_is_watched_on_the_device_that_cuda_calls_its_first(tmp_path: Path) -> None:
    build_driver(tmp_path, 2)
    build_management(tmp_path, 2)
    done = run(tmp_path, "-c", WATCH)
    assert (json.loads(done.stdout), done.stderr) == (700, "")


@pytest.mark.parametrize("failing_look", [1, 3])
def test_a_device_that_cannot_be_asked_is_an_error_not_zero_bytes(
    failing_look: int, tmp_path: Path
) -> None:
    build_driver(tmp_path, 1)
    build_management(tmp_path, 1, failing_look)
    done = run(tmp_path, "-c", WATCH)
    assert (done.returncode, done.stdout) == (1, "")
    assert "DeviceError: nvmlDeviceGetMemoryInfo fails with error 999" in done.stderr


def test_an_nvml_that_does_not_start_is_an_error(tmp_path: Path) -> None:
    build_driver(tmp_path, 1)
    build_management(tmp_path, 1, code=9)
    assert "DeviceError: nvmlInit_v2 fails with error 9" in run(tmp_path, "-c", WATCH).stderr
