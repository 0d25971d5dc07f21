"""A schedule: the instructions of one run, computes and frees, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from checkmate.graph import OpId, TensorId


@dataclass(frozen=True, slots=True)
class Compute:
    """Run an op; a second compute of it is a recompute."""

    op: OpId


@dataclass(frozen=True, slots=True)
class Free:
    """Let go of a tensor."""

    tensor: TensorId


Instruction = Compute | Free


@dataclass(frozen=True, slots=True)
class Schedule:
    """What a run does, one instruction after the other."""

    instructions: tuple[Instruction, ...]

    @property
    def order(self) -> tuple[OpId, ...]:
        """The ops in the order in which they are computed, recomputes included."""
        return tuple(step.op for step in self.instructions if isinstance(step, Compute))


def count_recomputes(order: Sequence[OpId]) -> int:
    """Return how many computes of ``order`` are not the first of their op."""
    return len(order) - len(set(order))
