"""Which tensor to evict: the one of the lowest score.

    weight * recompute_ns^a / (nbytes * distance^b)

``recompute_ns`` is the time of the ops that would have to run again to have the tensor back,
``distance`` the number of ops until it is needed. A tensor that nothing needs scores zero.

Kirisame et al., "Dynamic Tensor Rematerialization", ICLR 2021, section 3 evicts by a score of
the same shape; theirs looks back (staleness), ours looks forward, since the graph is known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from checkmate.graph import TensorId
from checkmate.heuristics.memory import NEVER, Memory
from checkmate.heuristics.tables import Tables

LOST = math.inf
"""The score of a tensor that could not be made again."""
_MOST_OPS = 256
"""More ops that would have to run again for one tensor are not looked at: with all of them, the
time to plan would grow with the square of the graph."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How a run chooses what to evict."""

    time_power: float = 1.0
    distance_power: float = 1.0
    chain_weight: float = 1.0
    """How much the recomputes of missing ancestors count beside the op's own."""
    trusting: bool = True
    """True: what is in memory now will be there for the recompute; False: only what an op still
    has to read by then."""
    backward_weight: float = 1.0
    """Multiplies the scores of tensors made by backward ops; infinite: none is evicted."""
    recompute_from: int = 0
    """No tensor is evicted that an op before this one needs."""
    weights: tuple[float, ...] = ()
    """Per tensor; empty: all one."""


class Scorer:
    """Scores tensors by a policy, as memory stands."""

    def __init__(self, memory: Memory, policy: Policy) -> None:
        self._memory = memory
        self._policy = policy
        self._weights = _weigh(memory.tables, policy)
        self._rests_on_single = _find_resting(memory.tables)

    def score(self, tensor: TensorId) -> float:
        """Return the score of ``tensor``, which is in memory."""
        policy, memory = self._policy, self._memory
        need = memory.find_need(tensor)
        if need == NEVER:
            return 0.0
        if need < policy.recompute_from:
            return LOST
        time_ns = self._find_recompute_ns(tensor, need)
        if time_ns == LOST:
            return LOST
        distance = max(1, need - memory.stage)
        score: float = (time_ns + 1) ** policy.time_power / (
            memory.tables.nbytes[tensor] * distance**policy.distance_power
        )
        return score * self._weights[tensor]

    def _find_recompute_ns(self, tensor: TensorId, need: int) -> float:
        """Return the time to make ``tensor`` again in stage ``need``, or that it would be lost.

        Of very many ops the time of some is enough to tell: they are far more than of any tensor
        that should go.
        """
        memory, tables, trusting = self._memory, self._memory.tables, self._policy.trusting
        origin = tables.producers[tensor]
        seen = {origin}
        pending = [origin]
        chain_ns = 0
        most = len(tables.time_ns) if self._rests_on_single[origin] else _MOST_OPS
        while pending and len(seen) <= most:
            op = pending.pop()
            if not tables.recomputable[op]:
                return LOST
            chain_ns += tables.time_ns[op]
            for read in tables.reads[op]:
                if memory.live[read] and (trusting or memory.is_used_until(read, need)):
                    continue
                producer = tables.producers[read]
                if producer not in seen:
                    seen.add(producer)
                    pending.append(producer)
        own_ns = tables.time_ns[origin]
        return own_ns + self._policy.chain_weight * (chain_ns - own_ns)


def _find_resting(tables: Tables) -> list[bool]:
    """Return, per op, whether it or one that it depends on may run only once."""
    resting: list[bool] = []
    for op, recomputable in enumerate(tables.recomputable):
        inputs = (tables.producers[read] for read in tables.reads[op])
        resting.append(not recomputable or any(resting[before] for before in inputs))
    return resting


def _weigh(tables: Tables, policy: Policy) -> list[float]:
    """Return the weight of each tensor."""
    weights = list(policy.weights) or [1.0] * len(tables.nbytes)
    for tensor, producer in enumerate(tables.producers):
        if producer >= 0 and tables.backward[producer]:
            weights[tensor] *= policy.backward_weight
    return weights
