"""The few functions of onnxruntime's C API that its Python module does not offer.

The Python module is a library of its own with its own environment, and exports no C API. But it
hands that API to provider libraries: ``libonnxruntime_providers_shared`` holds a pointer to the
host object once any provider library was asked for, and the first virtual function of that
object returns the API. The version that the API reports must be that of the module, or it is not
used. The API is a table of functions that only ever grows, so positions in it are stable.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import onnxruntime

from checkmate.runtime.probe_model import PROBE_MODEL

_API_VERSION = 18
"""The first with every function used here."""
_GET_ERROR_MESSAGE = 2
_CREATE_ENV = 3
_CREATE_MEMORY_INFO = 68
_REGISTER_ALLOCATOR = 176

_Pointer = ctypes.c_void_p
Api = ctypes.Array[ctypes.c_void_p]
"""The table of functions."""
_Table = ctypes.POINTER(ctypes.c_void_p)
_Allocate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_Release = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_Describe = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


class _OrtAllocator(ctypes.Structure):
    """The C API's allocator, as of version 18."""

    _fields_ = (
        ("version", ctypes.c_uint32),
        ("allocate", _Allocate),
        ("release", _Release),
        ("describe", _Describe),
        ("reserve", _Allocate),
    )


class CApiError(Exception):
    """The C API cannot be reached, or refused; never seen outside of this room."""


class RegisteredAllocator:
    """Two functions that sessions with ``use_env_allocators`` call for memory of one device.

    It must live as long as such sessions and their outputs do.
    """

    def __init__(
        self,
        api: Api,
        device: str,
        device_id: int,
        allocate: Callable[[int], int | None],
        release: Callable[[int], None],
    ) -> None:
        self._info = _Pointer()
        # Device memory (0) of the default type (0).
        numbers = [ctypes.c_int(n) for n in (0, device_id, 0)]
        name = ctypes.c_char_p(device.encode())
        _call(api, _CREATE_MEMORY_INFO, name, *numbers, ctypes.pointer(self._info))
        environment = _Pointer()
        log_name = ctypes.c_char_p(b"checkmate")
        _call(api, _CREATE_ENV, ctypes.c_int(3), log_name, ctypes.pointer(environment))
        info = self._info.value

        def allocate_(_this: int, nbytes: int) -> int | None:
            return allocate(nbytes)

        def release_(_this: int, address: int | None) -> None:
            if address:
                release(address)

        self._struct = _OrtAllocator(
            _API_VERSION,
            _Allocate(allocate_),
            _Release(release_),
            _Describe(lambda _this: info),
            _Allocate(allocate_),
        )
        _call(api, _REGISTER_ALLOCATOR, environment, ctypes.pointer(self._struct))


def find_api() -> Api:
    """Return the table of the C API that belongs to the Python module.

    What the CUDA provider needs is loaded then, where it can be.
    """
    folder = Path(onnxruntime.__file__).parent / "capi"
    libraries = sorted(folder.glob("*onnxruntime_providers_shared.*"))
    if not libraries:
        raise CApiError("this onnxruntime has no shared provider library")
    # Asking for a provider, even in vain, makes the module introduce itself to the library.
    onnxruntime.InferenceSession(
        PROBE_MODEL, providers=["CUDAExecutionProvider", "CPUExecutionProvider"]
    )
    get_host = ctypes.CDLL(str(libraries[0])).Provider_GetHost
    get_host.restype = ctypes.c_void_p
    host = get_host()
    if not host:
        raise CApiError("onnxruntime did not introduce itself to its provider library")
    methods = ctypes.cast(ctypes.cast(host, _Table)[0], _Table)
    base = ctypes.cast(ctypes.CFUNCTYPE(_Pointer, _Pointer)(methods[0])(host), _Table)
    version = ctypes.CFUNCTYPE(ctypes.c_char_p)(base[1])()
    if version is None or version.decode() != onnxruntime.__version__:
        raise CApiError(f"the C API says it is {version!r}, not {onnxruntime.__version__}")
    table = ctypes.CFUNCTYPE(_Pointer, ctypes.c_uint32)(base[0])(_API_VERSION)
    if not table:
        raise CApiError(f"this onnxruntime has no C API version {_API_VERSION}")
    return ctypes.cast(table, _Table)  # type: ignore[return-value]  # indexed alike


def _call(api: Api, position: int, *arguments: object) -> None:
    """Call a function that returns a status, and raise `CApiError` when it is not null.

    ``arguments`` are ctypes values, which say how wide each of them is.
    """
    status = ctypes.CFUNCTYPE(_Pointer)(_address(api, position))(*arguments)
    if status:
        get_message = ctypes.CFUNCTYPE(ctypes.c_char_p, _Pointer)(_address(api, _GET_ERROR_MESSAGE))
        raise CApiError((get_message(status) or b"unknown failure").decode())


def _address(api: Api, position: int) -> int:
    address: int | None = api[position]
    if address is None:
        raise CApiError(f"function {position} of the C API is not there")
    return address
