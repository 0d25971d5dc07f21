"""What each op of a graph costs on one device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from checkmate.errors import InputError
from checkmate.graph import Graph
from checkmate.units import MAX_QUANTITY


@dataclass(frozen=True, slots=True)
class Origin:
    """Where costs come from; written into every schedule."""

    source: Literal["profile", "flops", "file"]
    """Measured here, counted from shapes, or given with the problem."""
    provider: str = ""
    """Execution provider that ran the ops; empty when none did."""
    device: str = ""
    """Name of the processor that ran the ops; empty when none did."""
    onnxruntime: str = ""
    """Version that ran the ops; empty when none did."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Time and workspace per op, in graph order."""

    time_ns: tuple[int, ...]
    workspace_nbytes: tuple[int, ...]
    """Memory that an op uses while it runs, beside its inputs and outputs."""
    origin: Origin

    def __post_init__(self) -> None:
        if len(self.time_ns) != len(self.workspace_nbytes):
            raise InputError(
                f"costs name {len(self.time_ns)} times and {len(self.workspace_nbytes)} workspaces"
            )
        if min((*self.time_ns, *self.workspace_nbytes), default=0) < 0:
            raise InputError("a cost is below zero")
        if max(self.total_ns, *self.workspace_nbytes, 0) > MAX_QUANTITY // 2**10:
            raise InputError("the costs are larger than any run")

    @property
    def total_ns(self) -> int:
        """The time of running each op once."""
        return sum(self.time_ns)


def unit_costs(graph: Graph) -> Costs:
    """Return costs of one nanosecond and no workspace per op."""
    n_ops = len(graph.ops)
    return Costs((1,) * n_ops, (0,) * n_ops, Origin("file"))
