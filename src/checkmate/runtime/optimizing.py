"""Child side of optimization: a session that saves the graph that it would run."""

from __future__ import annotations

import onnxruntime

from checkmate.runtime.protocol import OptimizeTask, Reply, Settings
from checkmate.runtime.session import make_providers, preload_cuda, require_provider

_LEVELS = {
    "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
}


def optimize(task: OptimizeTask) -> Reply:
    """Write the optimized model of ``task`` and return the version of onnxruntime."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = _LEVELS[task.level]
    options.optimized_model_filepath = task.optimized
    options.log_severity_level = 3
    options.add_session_config_entry("session.disable_prepacking", "1")
    # Versions that do not know this entry fold whatever they can.
    options.add_session_config_entry(
        "optimization.constant_folding_max_output_size_in_bytes", str(task.max_folded_nbytes)
    )
    if task.provider == "cuda":
        preload_cuda()
    settings = Settings(task.provider)
    session = onnxruntime.InferenceSession(
        task.model,
        options,
        providers=make_providers(settings),
        disabled_optimizers=_list_disabled(task),
        # The second try would be on the CPU, with all optimizers.
        enable_fallback=0,
    )
    require_provider(session, settings)
    return {"version": onnxruntime.__version__}


def _list_disabled(task: OptimizeTask) -> list[str] | None:
    """Return the optimizers that are not to run; None: all run."""
    disabled = [] if task.max_folded_nbytes else ["ConstantFolding"]
    # It takes away Dropouts in training mode too, where nobody reads their mask.
    disabled += ["EliminateDropout"] if task.keeps_dropouts else []
    return disabled or None
