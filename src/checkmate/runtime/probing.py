"""Child side of the probe: what a session really gets, whatever the package claims."""

from __future__ import annotations

import ctypes

import onnxruntime

from checkmate.runtime.probe_model import PROBE_MODEL
from checkmate.runtime.protocol import ProbeTask, Reply
from checkmate.runtime.session import disable_fallback, is_fallback_refusal, preload_cuda

_CUDA = "CUDAExecutionProvider"


def probe(task: ProbeTask) -> Reply:
    """Return the version, whether CUDA works, and the name and size of the device."""
    device_name, device_nbytes, n_devices = _query_cuda()
    has_wheel = _CUDA in onnxruntime.get_available_providers()
    is_usable = task.provider == "cuda" and has_wheel and n_devices > 0 and _gets_cuda()
    return {
        "version": onnxruntime.__version__,
        "has_wheel": has_wheel,
        "n_devices": n_devices,
        "is_usable": is_usable,
        "name": device_name,
        "nbytes": device_nbytes,
    }


def _gets_cuda() -> bool:
    """Return whether a session runs on CUDA; without more, it falls back without an error."""
    preload_cuda()
    options = onnxruntime.SessionOptions()
    disable_fallback(options)
    try:
        session = onnxruntime.InferenceSession(PROBE_MODEL, options, providers=[_CUDA])
    except Exception as error:  # what onnxruntime raises has no class of its own
        if not is_fallback_refusal(error):
            raise
        return False
    return _CUDA in session.get_providers()


def _query_cuda() -> tuple[str, int, int]:
    """Return the name and memory of the first CUDA device and how many there are."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "", 0, 0
    n_devices, device, nbytes = ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
    name = ctypes.create_string_buffer(256)
    failed = (
        driver.cuInit(0)
        or driver.cuDeviceGetCount(ctypes.byref(n_devices))
        or driver.cuDeviceGet(ctypes.byref(device), 0)
        or driver.cuDeviceGetName(name, len(name), device)
        or driver.cuDeviceTotalMem_v2(ctypes.byref(nbytes), device)
    )
    return ("", 0, 0) if failed else (name.value.decode(), nbytes.value, n_devices.value)
