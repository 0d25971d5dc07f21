"""Child side of placement: whether a provider has a kernel for what a model asks of it."""

from __future__ import annotations

import onnxruntime

from checkmate.runtime.protocol import PlaceTask, Reply
from checkmate.runtime.session import (
    Instruments,
    disable_fallback,
    is_fallback_refusal,
    make_options,
    make_providers,
    preload_cuda,
)


def place(task: PlaceTask) -> Reply:
    """Return whether every node of the model runs on the provider.

    A session that may not fall back to the CPU is refused when a node would; onnxruntime says so
    without running anything. Every other refusal is raised as it is. The table of kernels that
    the Python module offers (``get_all_opkernel_def``) is no substitute: it ends the process where
    a provider that the wheel was built with, such as TensorRT, cannot be loaded.
    """
    options = make_options(task.settings, Instruments())
    providers = make_providers(task.settings)
    if task.settings.provider == "cuda":
        preload_cuda()
        disable_fallback(options)
        # The CPU comes last, and onnxruntime refuses a fallback that is both named and forbidden.
        providers = providers[:1]
    try:
        onnxruntime.InferenceSession(task.model, options, providers=providers, enable_fallback=0)
    except Exception as error:  # what onnxruntime raises has no class of its own
        if not is_fallback_refusal(error):
            raise
        return {"is_placed": False}
    return {"is_placed": True}
