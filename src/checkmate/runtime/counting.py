"""An allocator that counts what onnxruntime asks for, byte by byte."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from checkmate.runtime.capi import CApiError, RegisteredAllocator, find_api
from checkmate.runtime.protocol import Settings
from checkmate.runtime.session import preload_cuda


class Memory(Protocol):
    """A source of memory."""

    def allocate(self, nbytes: int) -> int | None:
        """Return an address; None when there is no such block."""

    def release(self, address: int) -> None:
        """Take a block back."""


class CountingAllocator:
    """Serves every session that shares its environment's allocators, and keeps count.

    The count is of bytes asked for: no rounding, no fragmentation, no arena. Raises `CApiError`
    where the allocator cannot be registered.
    """

    def __init__(self, settings: Settings) -> None:
        is_cuda = settings.provider == "cuda"
        if is_cuda:
            preload_cuda()
        # Before it, nothing has loaded the CUDA runtime in a fresh process.
        api = find_api()
        self._memory: Memory = _CudaMemory() if is_cuda else _HostMemory()
        self._nbytes: dict[int, int] = {}
        self.in_use_nbytes = 0
        self.max_in_use_nbytes = 0
        self.n_allocations = 0
        device = "Cuda" if is_cuda else "Cpu"
        self._registered = RegisteredAllocator(
            api, device, settings.device_id, self._allocate, self._release
        )

    def reset_peak(self) -> None:
        """Count the peak from what is in use now."""
        self.max_in_use_nbytes = self.in_use_nbytes

    def _allocate(self, nbytes: int) -> int | None:
        address = self._memory.allocate(max(1, nbytes))
        if address is None:
            return None
        self._nbytes[address] = nbytes
        self.n_allocations += 1
        self.in_use_nbytes += nbytes
        self.max_in_use_nbytes = max(self.max_in_use_nbytes, self.in_use_nbytes)
        return address

    def _release(self, address: int) -> None:
        self.in_use_nbytes -= self._nbytes.pop(address)
        self._memory.release(address)


class _HostMemory:
    """The C library's memory, aligned as onnxruntime's kernels expect."""

    _ALIGNMENT = 64

    def __init__(self) -> None:
        library = ctypes.CDLL(None)
        self._allocate = library.posix_memalign
        self._allocate.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
        self._free = library.free
        self._free.argtypes = (ctypes.c_void_p,)

    def allocate(self, nbytes: int) -> int | None:
        address = ctypes.c_void_p()
        failed = self._allocate(ctypes.byref(address), self._ALIGNMENT, nbytes)
        return None if failed else address.value

    def release(self, address: int) -> None:
        self._free(address)


class _CudaMemory:
    """Device memory through the CUDA runtime that onnxruntime itself has loaded.

    Slow, as each release waits for the device, which also makes it safe without streams.
    """

    def __init__(self) -> None:
        found = re.search(r"/\S*libcudart\.so\S*", Path("/proc/self/maps").read_text())
        if found is None:
            raise CApiError("the CUDA runtime is not loaded")
        library = ctypes.CDLL(found[0])
        self._malloc: Callable[..., int] = library.cudaMalloc
        self._free = library.cudaFree
        self._free.argtypes = (ctypes.c_void_p,)

    def allocate(self, nbytes: int) -> int | None:
        address = ctypes.c_void_p()
        failed = self._malloc(ctypes.byref(address), ctypes.c_size_t(nbytes))
        return None if failed else address.value

    def release(self, address: int) -> None:
        self._free(address)
