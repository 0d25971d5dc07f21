"""How to run a rewritten model, in the names of onnxruntime's session options."""

from __future__ import annotations

from collections.abc import Mapping

ADVICE: Mapping[str, str] = {
    "execution_order": "PRIORITY_BASED",
    "graph_optimization_level": "ORT_DISABLE_ALL",
    "enable_mem_pattern": "0",
    "enable_mem_reuse": "0",
    "session.disable_prepacking": "1",
}
"""What `make_options` sets: file order, no merged copies, no memory beside the live tensors."""
