"""What is in memory at one moment of a run, and what will be needed of it."""

from __future__ import annotations

from collections.abc import Iterable

from checkmate.graph import OpId, TensorId
from checkmate.heuristics.tables import Tables

NEVER = 1 << 60


class Memory:
    """The tensors in memory during a stage; `live` and `used_nbytes` are read freely."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.live = [producer < 0 for producer in tables.producers]
        self.used_nbytes = tables.resident_nbytes
        self.stage = OpId(0)
        self._cursor = [0] * len(tables.nbytes)
        self._kept_until = [NEVER] * len(tables.nbytes)
        for output in tables.outputs:
            self._kept_until[output] = tables.n_ops - 1

    def add(self, tensor: TensorId) -> None:
        """Put a tensor into memory; nothing happens when it is there."""
        if not self.live[tensor]:
            self.live[tensor] = True
            self.used_nbytes += self.tables.nbytes[tensor]

    def remove(self, tensor: TensorId) -> None:
        """Take a tensor out of memory."""
        self.live[tensor] = False
        self.used_nbytes -= self.tables.nbytes[tensor]

    def end_stage(self) -> None:
        """Go on to the next stage, when the op of this one has run."""
        for tensor in self.tables.reads[self.stage]:
            self._cursor[tensor] += 1
        self.stage = OpId(self.stage + 1)

    def find_missing(self, tensors: Iterable[TensorId]) -> list[OpId]:
        """Return the ops that have to run, in graph order, to have ``tensors`` in memory."""
        producers, reads, live = self.tables.producers, self.tables.reads, self.live
        found: set[OpId] = set()
        pending = [producers[t] for t in tensors if not live[t]]
        while pending:
            op = pending.pop()
            if op not in found:
                found.add(op)
                pending += [producers[t] for t in reads[op] if not live[t]]
        return sorted(found)

    def find_next_use(self, tensor: TensorId) -> int:
        """Return the next op to read ``tensor`` for the first time; `NEVER` where none does."""
        readers, at = self.tables.readers[tensor], self._cursor[tensor]
        return readers[at] if at < len(readers) else self._kept_until[tensor]

    def is_used_until(self, tensor: TensorId, stage: int) -> bool:
        """Return whether an op is still to read ``tensor`` in ``stage`` or later."""
        readers = self.tables.readers[tensor]
        return self._kept_until[tensor] < NEVER or bool(readers and readers[-1] >= stage)

    def find_need(self, tensor: TensorId) -> int:
        """Return the stage that needs ``tensor`` next, be it to make another one again."""
        readers, makes, live, stage = self.tables.readers, self.tables.makes, self.live, self.stage
        need = self.find_next_use(tensor)
        seen = {tensor}
        pending = [tensor]
        while pending:
            for reader in readers[pending.pop()]:
                if reader >= stage:
                    break
                for made in makes[reader]:
                    if not live[made] and made not in seen:
                        seen.add(made)
                        need = min(need, self.find_next_use(made))
                        pending.append(made)
        return need
