"""A driver with one device, and an onnxruntime whose CUDA provider is the CPU's or fails.

For machines without a GPU: what is put in the place of onnxruntime's own session passes all on to
it, under another provider, and raises what was seen of onnxruntime-gpu 1.31.1.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnxruntime
import pytest
from onnxruntime.capi import onnxruntime_inference_collection as collection

CUDA = "CUDAExecutionProvider"
NAME, NBYTES = "a device", 8 * 2**30

OLD_DRIVER = (
    "/onnxruntime_src/onnxruntime/core/providers/cuda/cuda_call.cc:154 std::conditional_t<THRW,"
    " void, onnxruntime::common::Status> onnxruntime::CudaCall(ERRTYPE, const char*) [with ERRTYPE"
    " = cudaError; bool THRW = true] CUDA failure 35: CUDA driver version is insufficient for CUDA"
    " runtime version ; GPU=-1 ; hostname=vm ; file=cuda_execution_provider.cc ; line=355 ;"
    " expr=cudaSetDevice(info_.device_id); \n\n"
)
"""What the provider's constructor raised under a driver that is older than its CUDA."""


class _Sessions(collection.C.InferenceSession):
    """Sessions on the CPU that say they are on CUDA."""

    init_error = ""
    """What their providers fail with; ``{options}`` stands for those of the first provider."""
    run_error = ""
    """What their runs fail with."""

    def __init__(self, options: Any, *model: Any) -> None:
        self._asked: dict[str, str] | None = None
        # It would refuse the CPU.
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "0")
        super().__init__(options, *model)

    def initialize_session(
        self, providers: Sequence[str], options: Sequence[dict[str, str]], *rest: Any
    ) -> None:
        if CUDA in providers:
            self._asked = dict(options[0])
            if self.init_error:
                raise RuntimeError(self.init_error.replace("{options}", str(self._asked)))
        super().initialize_session([], [], *rest)

    def get_providers(self) -> list[str]:
        return [*([] if self._asked is None else [CUDA]), *super().get_providers()]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        own: dict[str, dict[str, str]] = super().get_provider_options()
        return own if self._asked is None else own | {CUDA: self._asked}

    def run(self, *arguments: Any) -> Any:
        self._fail()
        return super().run(*arguments)

    def run_with_iobinding(self, *arguments: Any) -> Any:
        self._fail()
        return super().run_with_iobinding(*arguments)

    def _fail(self) -> None:
        if self.run_error:
            raise RuntimeError(self.run_error)


def replace_sessions(set_: Callable[..., None], init_error: str, run_error: str) -> None:
    """Put the sessions in the place of onnxruntime's own."""
    errors = {"init_error": init_error, "run_error": run_error}
    set_(collection.C, "InferenceSession", type("InferenceSession", (_Sessions,), errors))
    set_(onnxruntime, "get_available_providers", lambda: [CUDA, "CPUExecutionProvider"])
    set_(onnxruntime, "cuda_version", "13.0")


def _fill(reference: Any, value: int) -> int:
    reference._obj.value = value
    return 0


def _load(load: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``load``, but for the driver."""

    def name(buffer: Any, *_: Any) -> int:
        buffer.value = NAME.encode()
        return 0

    driver = SimpleNamespace(
        cuInit=lambda _: 0,
        cuDeviceGetCount=lambda count: _fill(count, 1),
        cuDeviceGet=lambda device, _: _fill(device, 0),
        cuDeviceGetName=name,
        cuDeviceTotalMem_v2=lambda nbytes, _: _fill(nbytes, NBYTES),
    )
    return lambda name, *rest: driver if name == "libcuda.so.1" else load(name, *rest)


def install(init_error: str, run_error: str) -> None:
    """Fake the driver and onnxruntime in this process, which is a child's."""
    replace_sessions(setattr, init_error, run_error)
    ctypes.CDLL = _load(ctypes.CDLL)  # type: ignore[assignment,misc]


def fake_in_children(
    folder: Path, patch: pytest.MonkeyPatch, *, init_error: str = "", run_error: str = ""
) -> None:
    """Let every child process that starts from here have them, through a file in ``folder``."""
    program = f"import fake_cuda\nfake_cuda.install({init_error!r}, {run_error!r})\n"
    (folder / "sitecustomize.py").write_text(program)
    paths = (str(folder), str(Path(__file__).parent), os.environ.get("PYTHONPATH", ""))
    patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
