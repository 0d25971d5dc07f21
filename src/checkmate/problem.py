"""A problem: a graph, what its ops cost, and the arena in which a run of it must fit."""

from __future__ import annotations

from dataclasses import dataclass

from checkmate.costs import Costs
from checkmate.errors import InputError
from checkmate.graph import Graph
from checkmate.placement import ArenaRules


@dataclass(frozen=True, slots=True)
class Problem:
    """A graph and what its ops cost, which is all that a search sees."""

    graph: Graph
    costs: Costs
    arena: ArenaRules | None = None
    """The arena that a run gets, within which a plan must stay; None: bytes alone count."""

    def __post_init__(self) -> None:
        if len(self.costs.time_ns) != len(self.graph.ops):
            raise InputError(
                f"costs are for {len(self.costs.time_ns)} ops, but graph"
                f" {self.graph.name!r} has {len(self.graph.ops)}"
            )
