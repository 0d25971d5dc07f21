"""Sessions that run the ops of a file in its order and hold no more than that needs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnxruntime

from checkmate.errors import DeviceError
from checkmate.runtime.protocol import Settings

_CUDA = "CUDAExecutionProvider"
_CPU = "CPUExecutionProvider"
_NEXT_POWER_OF_TWO = 0
_SAME_AS_REQUESTED = 1


@dataclass(frozen=True, slots=True)
class Instruments:
    """What a session is watched with."""

    profile: Path | None = None
    """Prefix of the file that records what ran when."""
    statistics: Path | None = None
    """The file that records what each op allocated."""
    shares_allocators: bool = False
    """Use the allocator that is registered for the device."""
    has_arena: bool = True
    """Allocate on the CPU from an arena rather than from the C library."""


def make_options(settings: Settings, instruments: Instruments) -> onnxruntime.SessionOptions:
    """Return the options of every session."""
    options = onnxruntime.SessionOptions()
    if settings.manner == "scheduled":
        _keep_schedule(options)
    elif settings.manner == "default-no-pattern":
        options.enable_mem_pattern = False
    options.enable_cpu_mem_arena = instruments.has_arena
    options.intra_op_num_threads = settings.threads
    options.log_severity_level = 3
    if instruments.shares_allocators:
        options.add_session_config_entry("session.use_env_allocators", "1")
    if instruments.statistics is not None:
        options.add_session_config_entry(
            "session.collect_node_memory_stats_to_file", str(instruments.statistics)
        )
    if instruments.profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(instruments.profile)
    return options


def _keep_schedule(options: onnxruntime.SessionOptions) -> None:
    """Run the nodes of a file in its order, and hold no more than that needs.

    Priority-based order without optimizers is file order, Shape and Size apart. Memory patterns
    put a second block on top of the arena from the second run on, and reuse of dead buffers keeps
    them while nobody needs them. Prepacking would hold each weight twice, once in the layout of
    its kernel; costs and runs both go without, so that they agree.
    """
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_mem_pattern = False
    options.enable_mem_reuse = False
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.disable_prepacking", "1")


def make_providers(settings: Settings) -> list[tuple[str, dict[str, str]]]:
    """Return the providers of ``settings``; on CUDA, what it has no kernel for runs on the CPU."""
    if settings.provider == "cpu":
        return [(_CPU, {})]
    cuda = {
        "device_id": str(settings.device_id),
        "arena_extend_strategy": "kSameAsRequested",
        # The timing search of convolution algorithms takes workspace without limit, and picks
        # by the clock, so that two runs may differ.
        "cudnn_conv_algo_search": "HEURISTIC",
    }
    if not settings.tf32:
        cuda["use_tf32"] = "0"
    if settings.arena_limit_nbytes is not None:
        cuda["gpu_mem_limit"] = str(settings.arena_limit_nbytes)
    return [(_CUDA, cuda), (_CPU, {})]


def make_session(
    model: str, settings: Settings, instruments: Instruments
) -> onnxruntime.InferenceSession:
    """Return a session on the file ``model``.

    Raises `DeviceError` when CUDA is asked for and the session does not have it.
    """
    if settings.provider == "cuda":
        preload_cuda()
    options = make_options(settings, instruments)
    # Otherwise a provider that fails, also in a run, is replaced by the CPU's without an error.
    session = onnxruntime.InferenceSession(
        model, options, providers=make_providers(settings), enable_fallback=0
    )
    require_provider(session, settings)
    return session


def require_provider(session: onnxruntime.InferenceSession, settings: Settings) -> None:
    """Raise `DeviceError` when CUDA is asked for and ``session`` does not have it.

    Where the libraries of the provider do not load, onnxruntime goes on without it.
    """
    if settings.provider == "cuda" and _CUDA not in session.get_providers():
        raise DeviceError("CUDA was asked for, and onnxruntime made a session without it")


def disable_fallback(options: onnxruntime.SessionOptions) -> None:
    """Refuse a session of which any node would run on the CPU for want of a kernel."""
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")


def is_fallback_refusal(error: Exception) -> bool:
    """Return whether ``error`` is that refusal."""
    return "fallback to CPU EP has been explicitly disabled" in str(error)


def preload_cuda() -> None:
    """Load the CUDA libraries that pip installed, which the loader does not find by itself."""
    if hasattr(onnxruntime, "preload_dlls"):
        onnxruntime.preload_dlls()


def choose_clock(settings: Settings) -> Callable[[], int]:
    """Return the clock that tells best what a run would take on a machine of its own.

    On one thread that is the time which the processor gave to this process: when others wait for
    the same processor, it stands still.
    """
    is_alone = settings.provider == "cpu" and settings.threads == 1
    return time.process_time_ns if is_alone else time.perf_counter_ns


def needs_shared_arena(settings: Settings) -> bool:
    """Return whether the arena of ``settings`` is one that `register_arena` makes.

    The CPU provider takes no memory limit of its own; the CUDA provider does, and then grows by
    requests.
    """
    if settings.arena_limit_nbytes is None:
        return False
    return settings.provider == "cpu" or settings.layout == "region"


def register_arena(settings: Settings) -> None:
    """Make sessions that share allocators use one arena, of at most the limit.

    Sessions that were made before keep the arena that they have.
    """
    is_cuda = settings.provider == "cuda"
    memory = onnxruntime.OrtMemoryInfo(
        "Cuda" if is_cuda else "Cpu",
        onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR,
        settings.device_id if is_cuda else 0,
        onnxruntime.OrtMemType.DEFAULT,
    )
    limit_nbytes = settings.arena_limit_nbytes or 0
    is_region = settings.layout != "requests" and limit_nbytes > 0
    config = make_arena_config(limit_nbytes) if is_region else _make_loose_config(limit_nbytes)
    arena = onnxruntime.OrtArenaCfg(config)
    if is_cuda:
        preload_cuda()
        provider, options = make_providers(settings)[0]
        onnxruntime.create_and_register_allocator_v2(provider, memory, options, arena)
    else:
        onnxruntime.create_and_register_allocator(memory, arena)


def make_arena_config(limit_nbytes: int) -> dict[str, int]:
    """Return the arena that holds most in ``limit_nbytes``.

    One region as large as the limit, so that all that is free can merge; its pages are touched
    only when they are used. Each chunk is split to the size of its request. With less than a
    chunk's least size, 256, as the most dead bytes, onnxruntime makes chunks of no bytes, and dies.
    """
    # The size of the first region is a C int; below zero, the limit is taken for it.
    first = limit_nbytes if limit_nbytes < 2**31 else -2
    return _make_loose_config(limit_nbytes) | {
        "arena_extend_strategy": _NEXT_POWER_OF_TWO,
        "initial_chunk_size_bytes": first,
    }


def _make_loose_config(limit_nbytes: int) -> dict[str, int]:
    """Return an arena that grows by what is asked of it; 0: without a limit."""
    return {
        "max_mem": limit_nbytes,
        "arena_extend_strategy": _SAME_AS_REQUESTED,
        "initial_chunk_size_bytes": -1,
        "max_dead_bytes_per_chunk": 256,
    }
