"""The few lines that a program needs to run a rewritten model within its budget."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from numbers import Integral
from pathlib import Path
from typing import Literal, TypeGuard

import onnxruntime

from checkmate.errors import DeviceError, InputError, RunError, UsageError
from checkmate.onnxio.storage import count_held_nbytes
from checkmate.runtime.device import probe_device
from checkmate.runtime.protocol import Provider, Settings
from checkmate.runtime.session import Instruments, make_session, register_arena
from checkmate.units import format_nbytes_exactly

_MOST_NBYTES = 2**62
"""A budget beyond any memory; onnxruntime takes 64 bits."""


def open_session(
    model_path: str | os.PathLike[str],
    budget_nbytes: int,
    provider: Literal["auto", "cuda", "cpu"] = "auto",
    *,
    dims: Mapping[str, int] | None = None,
    binds_inputs: bool = False,
) -> onnxruntime.InferenceSession:
    """Return a session that runs the model in ``model_path`` within ``budget_nbytes``, or fails.

    The budget is for all that a run holds on the device: the arena from which onnxruntime takes
    outputs, activations and workspace gets what is left by all that lies outside of it. On the CPU
    that is the inputs, and the initializers, which are read where the file has them. ``dims`` are
    the values of the symbolic dimensions of the inputs. A run that needs more than the arena holds
    ends with onnxruntime's exception ``Available memory of ... is smaller than requested bytes of
    ...``.

    On CUDA, ``run`` copies arrays of numpy to the device, and takes the memory for that from the
    arena: so it gets the whole budget. With ``binds_inputs`` it gets what the inputs leave, for
    callers that bind inputs which they hold on the device themselves (``OrtValue`` with
    ``io_binding``), outside of the arena. On the CPU the two are alike.

    Let go of the outputs of one run before the next, or copy them: the arrays that a run returns
    lie in the arena. Outputs that you bind to memory of your own lie outside; take them off the
    budget.

    The options, and why:

    - ``execution_order`` by priority and ``graph_optimization_level`` none: ops run in the order
      of the file, and copies are not merged.
    - ``enable_mem_pattern`` off: from the second run on, it would put one block for all
      activations beside the arena. ``enable_mem_reuse`` off: it would keep dead tensors for later
      ones of their shape.
    - ``session.disable_prepacking``: weights are not held a second time, in another layout.
    - CPU: ``session.use_env_allocators`` and an arena of one region as large as its limit, each
      chunk split to its request. Regions of the size of each request (``kSameAsRequested``) never
      merge, and took up to twice the live bytes where this took a tenth more.
    - CUDA: ``gpu_mem_limit`` is the limit; ``arena_extend_strategy`` is ``kSameAsRequested``, as
      powers of two would grow past the need; ``cudnn_conv_algo_search`` is ``HEURISTIC``, as the
      timed search takes workspace without limit and picks by the clock. The CUDA context and the
      handles of its libraries lie outside of the budget.

    Raises `UsageError` for a budget that the inputs alone exceed or an argument of another type
    than is stated here, `InputError` for a file that cannot be read or a dimension without a value,
    `DeviceError` when CUDA was asked for and does not work, `RunError` when onnxruntime refuses the
    model, as where it has no kernel for an op.
    """
    _check_types(budget_nbytes, provider, dims or {})
    # Numbers of numpy would wrap around.
    budget_nbytes, sizes = int(budget_nbytes), {n: int(size) for n, size in (dims or {}).items()}
    path = Path(model_path)
    if not path.is_file():
        raise InputError(f"model {str(path)!r} is not there")
    found = probe_device(provider).provider
    outside_nbytes = count_held_nbytes(path, sizes, found)
    if outside_nbytes >= budget_nbytes:
        raise UsageError(
            f"inputs and weights of {path.name} take {format_nbytes_exactly(outside_nbytes)}, the"
            f" budget is {format_nbytes_exactly(budget_nbytes)}"
        )
    is_cpu = found == "cpu"
    beside_nbytes = outside_nbytes if is_cpu or binds_inputs else 0
    settings = Settings(found, arena_limit_nbytes=budget_nbytes - beside_nbytes)
    if is_cpu:
        register_arena(settings)
    try:
        return make_session(str(path), settings, Instruments(shares_allocators=is_cpu))
    except DeviceError as error:
        raise DeviceError(error.message, hint="use provider='cpu'") from error
    except Exception as error:  # what onnxruntime raises has no class of its own
        raise _explain(path, found, str(error)) from error


def _explain(path: Path, provider: Provider, message: str) -> RunError:
    """Return why onnxruntime made no session on the model in ``path``."""
    found = re.search(r"implementation for (?:\S+:)?(\w+)\(\d+\) node with name '([^']*)'", message)
    if found is None:
        first = next((line for line in message.splitlines() if line.strip()), "no message")
        return RunError(f"onnxruntime {onnxruntime.__version__} refuses {path.name}: {first}")
    is_cpu = provider == "cpu"
    device, elsewhere = ("the CPU", "run it on CUDA, or ") if is_cpu else ("CUDA or the CPU", "")
    op = f"{found[1]} {found[2]!r}" if found[2] else f"{found[1]} without a name"
    return RunError(
        f"{path.name} cannot run: onnxruntime {onnxruntime.__version__} has no kernel on {device}"
        f" for {op} in the element types that it reads",
        hint=f"{elsewhere}let the model compute it in float32, between two Casts",
    )


def _check_types(budget_nbytes: object, provider: object, dims: object) -> None:
    """Raise `UsageError` for what no type checker has seen."""
    if not _is_whole(budget_nbytes) or budget_nbytes > _MOST_NBYTES:
        raise UsageError(
            f"budget_nbytes is {budget_nbytes!r}, not a whole number of bytes",
            hint="give 8 * 2**30 for 8 GiB",
        )
    if provider not in ("auto", "cuda", "cpu"):
        raise UsageError(f"provider is {provider!r}, not 'auto', 'cuda' or 'cpu'")
    if not isinstance(dims, Mapping) or not all(_is_whole(size) for size in dims.values()):
        raise UsageError(
            f"dims is {dims!r}, not a whole number per name", hint="give dims={'N': 32}"
        )


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, Integral) and not isinstance(value, bool)
