"""Which device onnxruntime really runs on here."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from checkmate.errors import DeviceError
from checkmate.runtime.cgroup import find_limit_nbytes
from checkmate.runtime.protocol import ProbeTask, Provider, Reply
from checkmate.runtime.worker import Limits, Worker, shorten_failure
from checkmate.units import format_nbytes_exactly

_INSTALL_HINT = "pip install 'checkmate-remat[cuda]', or use --provider cpu"
_CPU_HINT = "use --provider cpu"
_PROBE_TIMEOUT_S = 120.0
_DRIVERS = {"12": "525", "13": "580"}
"""Per major version of CUDA, the oldest NVIDIA driver that runs it."""


RESERVE_NBYTES = 2**30
"""Of a device, for what no budget counts. On CUDA: the context, the code of the kernels, the
handles and workspaces of cuBLAS and cuDNN, which lie outside of ``gpu_mem_limit``. On the CPU: the
system, and the process with its libraries."""


@dataclass(frozen=True, slots=True)
class Device:
    """A processor with its memory, and the onnxruntime that drives it."""

    provider: Provider
    name: str
    nbytes: int
    """Its memory, all of it; on the CPU, at most what a container allows."""
    onnxruntime: str
    """The version."""
    notice: str | None = None
    """One line for the user: why the CPU was taken though CUDA may have been expected."""


def probe_device(provider: Literal["auto", "cuda", "cpu"]) -> Device:
    """Return the device that sessions get.

    The probe runs in a child process, so that no CUDA context stays behind and no library writes
    on the user's terminal. Raises `DeviceError` when CUDA was asked for and does not work.
    """
    with Worker(Limits(timeout_s=_PROBE_TIMEOUT_S)) as worker:
        wanted: Provider = "cpu" if provider == "cpu" else "cuda"
        reply = worker.ask(ProbeTask(wanted))
        errors = worker.read_errors()
    version = str(reply["version"])
    if reply["is_usable"]:
        return Device("cuda", str(reply["name"]), _as_int(reply["nbytes"]), version)
    problem, hint = _explain(reply, errors)
    if provider == "cuda":
        raise DeviceError(f"the CUDA provider is not usable: {problem}", hint=hint)
    notice = f"no usable CUDA device ({problem}); using the CPU" if provider == "auto" else None
    return Device("cpu", _find_cpu_name(), count_memory_nbytes(), version, notice)


def count_whole_budget_nbytes(device: Device) -> int:
    """Return the budget of a run that has ``device`` to itself: its memory, less the reserve.

    Raises `DeviceError` for a device that is no larger than that.
    """
    if device.nbytes <= RESERVE_NBYTES:
        raise DeviceError(
            f"{device.name} has {format_nbytes_exactly(device.nbytes)}, and"
            f" {format_nbytes_exactly(RESERVE_NBYTES)} of it are kept in reserve",
            hint="give --budget a size",
        )
    return device.nbytes - RESERVE_NBYTES


def count_memory_nbytes() -> int:
    """Return the memory of this machine, or of the container that this process is in."""
    machine_nbytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(machine_nbytes, find_limit_nbytes() or machine_nbytes)


def count_available_nbytes() -> int:
    """Return the memory of this machine that a new process could have."""
    path = Path("/proc/meminfo")
    found = re.search(r"MemAvailable:\s+(\d+) kB", path.read_text()) if path.exists() else None
    return int(found[1]) * 1024 if found else count_memory_nbytes() // 2


def count_free_nbytes(device: Device) -> int:
    """Return the memory that a run could have on ``device``; on CUDA, all of it."""
    return count_available_nbytes() if device.provider == "cpu" else device.nbytes


def count_drawable_nbytes(device: Device) -> int:
    """Return the memory that a run could have of which the inputs are drawn here.

    On CUDA they are drawn in the memory of this machine and then copied, so both must hold them.
    """
    return min(count_free_nbytes(device), count_available_nbytes())


def _explain(reply: Reply, errors: str) -> tuple[str, str]:
    """Return what is missing for CUDA, and what to do about it."""
    if not reply["has_wheel"]:
        return "this onnxruntime was built without it", (
            "replace the package onnxruntime by onnxruntime-gpu, or " + _CPU_HINT
        )
    if not reply["n_devices"]:
        return "no NVIDIA driver or no GPU", "install an NVIDIA driver, or " + _CPU_HINT
    if reply["problem"]:
        problem = shorten_failure(str(reply["problem"]))
        return problem, _advise(problem, reply)
    missing = re.search(r"(lib\S+?\.so[.\d]*): cannot open shared object file", errors)
    if missing:
        return f"library {missing[1]} not found", _INSTALL_HINT
    return "CUDA or cuDNN libraries do not load", _INSTALL_HINT


def _advise(problem: str, reply: Reply) -> str:
    """Return what to do about a session that failed on CUDA."""
    if "cudnn" in problem.lower():
        return _INSTALL_HINT
    version, cuda = str(reply["version"]), str(reply["cuda_version"])
    if "no kernel image" in problem:
        return f"onnxruntime {version} has no code for this device; take another, or {_CPU_HINT}"
    driver = _DRIVERS.get(cuda.partition(".")[0])
    if driver is None or "driver" not in problem:
        return "see what nvidia-smi says of the device, or " + _CPU_HINT
    return (
        f"onnxruntime {version} is built for CUDA {cuda}, which takes an NVIDIA driver of version"
        f" {driver} or newer (nvidia-smi tells yours): update it, or {_CPU_HINT}"
    )


def _find_cpu_name() -> str:
    path = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.+)", path.read_text()) if path.exists() else None
    return found[1].strip() if found else platform.processor() or platform.machine()


def _as_int(value: object) -> int:
    assert isinstance(value, int)
    return value
