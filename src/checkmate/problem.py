"""A problem: a graph with its costs, which is all that a search sees."""

from __future__ import annotations

from dataclasses import dataclass

from checkmate.costs import Costs
from checkmate.errors import InputError
from checkmate.graph import Graph


@dataclass(frozen=True, slots=True)
class Problem:
    """A graph and what its ops cost."""

    graph: Graph
    costs: Costs

    def __post_init__(self) -> None:
        if len(self.costs.time_ns) != len(self.graph.ops):
            raise InputError(
                f"costs are for {len(self.costs.time_ns)} ops, but graph"
                f" {self.graph.name!r} has {len(self.graph.ops)}"
            )
