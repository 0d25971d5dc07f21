"""What the NVIDIA driver says of GPUs; onnxruntime and the CUDA libraries are not needed for it.

    python bench/gpu_watch.py

Says which GPU there is; exits 1 where there is none.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from checkmate.errors import DeviceError

_HIDDEN = ("", "-1", "NoDevFiles")
"""Values of CUDA_VISIBLE_DEVICES by which a user hides all GPUs."""
_NO_DEVICE = 100
"""CUDA_ERROR_NO_DEVICE."""
_INTERVAL_S = 0.02


def main() -> None:
    """Say which GPU there is."""
    found = find_gpu()
    print(f"GPU: {found}" if found else "no GPU: neither the CUDA driver nor NVML knows one")
    sys.exit(0 if found else 1)


def find_gpu() -> str | None:
    """Return who knows of a GPU here, and what it says; None: nobody does, or all are hidden.

    The CUDA driver first; where that has none or fails, the driver's management library NVML.
    """
    if os.environ.get("CUDA_VISIBLE_DEVICES") in _HIDDEN:
        return None
    code, n_devices = _count_driver_devices()
    if n_devices:
        return f"the CUDA driver counts {n_devices}"
    n_managed = _count_managed_devices()
    if not n_managed:
        return None
    what = "is not there" if code is None else f"fails with error {code}"
    what = "has none" if code in (0, _NO_DEVICE) else what
    return f"NVML counts {n_managed}, and the CUDA driver {what}"


def _count_driver_devices() -> tuple[int | None, int]:
    """Return the error code of the CUDA driver and its number of devices; None: no driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None, 0
    n_devices = ctypes.c_int()
    code = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(n_devices))
    return code, 0 if code else n_devices.value


def _count_managed_devices() -> int:
    """Return how many GPUs NVML knows; 0 where it fails, as without a driver."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return 0
    n_devices = ctypes.c_uint()
    if library.nvmlInit_v2():
        return 0
    code = library.nvmlDeviceGetCount_v2(ctypes.byref(n_devices))
    library.nvmlShutdown()
    return 0 if code else n_devices.value


def find_bus_id() -> bytes:
    """Return the PCI bus id of CUDA's first device, which CUDA_VISIBLE_DEVICES chooses.

    NVML numbers devices in another order and sees those that are hidden from CUDA too. No context
    is made, so that no memory of the device is taken.
    """
    driver = _load("libcuda.so.1")
    device, bus_id = ctypes.c_int(), ctypes.create_string_buffer(32)
    _call(driver, "cuInit", 0)
    _call(driver, "cuDeviceGet", ctypes.byref(device), 0)
    _call(driver, "cuDeviceGetPCIBusId", bus_id, len(bus_id), device)
    return bus_id.value


@dataclass(slots=True)
class Seen:
    """The used bytes of a device, many times a second."""

    used_nbytes: list[int] = field(default_factory=list)
    errors: list[DeviceError] = field(default_factory=list)

    def count_added_nbytes(self) -> int:
        """Return the most that was used beside what was used at first.

        Raises `DeviceError` when the device could not be asked at any time.
        """
        if self.errors:
            raise self.errors[0]
        return max(self.used_nbytes) - self.used_nbytes[0]


@contextmanager
def watch_device(bus_id: bytes) -> Iterator[Seen]:
    """Watch the memory of the device at ``bus_id``; raises `DeviceError` where NVML fails.

    All processes count, so no other may start or end meanwhile.
    """
    library = _load("libnvidia-ml.so.1")
    handle, numbers = ctypes.c_void_p(), (ctypes.c_ulonglong * 3)()
    seen, is_over = Seen(), threading.Event()

    def look() -> None:
        # Total, free and used bytes.
        _call(library, "nvmlDeviceGetMemoryInfo", handle, numbers)
        seen.used_nbytes.append(numbers[2])

    def watch() -> None:
        try:
            while not is_over.wait(_INTERVAL_S):
                look()
        except DeviceError as error:
            seen.errors.append(error)

    _call(library, "nvmlInit_v2")
    try:
        _call(library, "nvmlDeviceGetHandleByPciBusId_v2", bus_id, ctypes.byref(handle))
        look()
        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield seen
        finally:
            is_over.set()
            thread.join()
    finally:
        library.nvmlShutdown()


def _load(name: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise DeviceError(f"{name} does not load: {error}") from error


def _call(library: ctypes.CDLL, name: str, *arguments: object) -> None:
    """Call a function that returns 0 or an error code; raises `DeviceError` for the latter."""
    code = getattr(library, name)(*arguments)
    if code:
        raise DeviceError(f"{name} fails with error {code}")


if __name__ == "__main__":
    main()
