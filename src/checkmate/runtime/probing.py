"""Child side of the probe: what a session really gets, whatever the package claims."""

from __future__ import annotations

import ctypes

import numpy as np
import onnxruntime

from checkmate.runtime.probe_model import PROBE_MODEL, PROBE_SHAPE
from checkmate.runtime.protocol import ProbeTask, Reply
from checkmate.runtime.session import (
    disable_fallback,
    is_fallback_refusal,
    preload_cuda,
)

_CUDA = "CUDAExecutionProvider"


def probe(task: ProbeTask) -> Reply:
    """Return the version, whether CUDA works, and the name and size of the device."""
    device_name, device_nbytes, n_devices = _query_cuda()
    has_wheel = _CUDA in onnxruntime.get_available_providers()
    is_tried = task.provider == "cuda" and has_wheel and n_devices > 0
    problem = find_problem() if is_tried else None
    return {
        "version": onnxruntime.__version__,
        "cuda_version": getattr(onnxruntime, "cuda_version", ""),
        "has_wheel": has_wheel,
        "n_devices": n_devices,
        "is_usable": is_tried and problem is None,
        "problem": problem or "",
        "name": device_name,
        "nbytes": device_nbytes,
    }


def find_problem() -> str | None:
    """Return why no session runs on CUDA, in onnxruntime's words; None: one ran there.

    Empty when the provider's libraries do not load, of which onnxruntime writes to standard error
    only. A session is run, as cuDNN is loaded by the first op that needs it, and code for another
    generation of devices is found out by the first kernel.
    """
    preload_cuda()
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    disable_fallback(options)
    try:
        # Otherwise a provider that fails is replaced by the CPU's, which contradicts the options.
        session = onnxruntime.InferenceSession(
            PROBE_MODEL, options, providers=[_CUDA], enable_fallback=0
        )
        session.run(None, {"x": np.ones(PROBE_SHAPE, np.float32)})
    except Exception as error:  # what onnxruntime raises has no class of its own
        return "" if is_fallback_refusal(error) else str(error)
    return None if _CUDA in session.get_providers() else ""


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
