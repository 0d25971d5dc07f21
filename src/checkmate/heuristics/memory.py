"""What is in memory at one moment of a run, and what will be needed of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

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
        self._needs = [NEVER] * len(tables.nbytes)
        self._missing: dict[TensorId, list[tuple[int, TensorId]]] = {}
        """Per tensor, those made from it that are not in memory, by need; old entries too."""
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
        self._pass_on_need(tensor)

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
        """Return the stage that needs ``tensor`` next, be it to make another one again.

        A tensor that can be made again is needed for those not in memory alone. One that cannot is
        needed for all that could not be made again without it.
        """
        need = self.find_next_use(tensor)
        if not self.tables.recomputable[self.tables.producers[tensor]]:
            return need if need < NEVER else self._find_need(tensor, spares_live=False)
        return min(need, self._find_need_of_missing(tensor))

    def _find_need_of_missing(self, tensor: TensorId) -> int:
        """Return the stage that next needs something missing that is made from ``tensor``."""
        missing = self._missing.get(tensor, [])
        while missing:
            need, made = missing[0]
            is_current = not self.live[made] and need == self._needs[made]
            if is_current and need > self.stage:
                return need
            heappop(missing)
            if is_current:
                need = self._find_need(made, spares_live=True)
                self._note_need(made, need)
                if need <= self.stage:
                    return need
        return NEVER

    def is_needed_now(self, tensor: TensorId) -> bool:
        """Return whether an op, or a tensor that is not in memory, still needs ``tensor``."""
        return self._find_need(tensor, spares_live=True) < NEVER

    def _find_need(self, tensor: TensorId, *, spares_live: bool) -> int:
        need = self.find_next_use(tensor)
        seen = {tensor}
        pending = [tensor]
        while pending:
            for made in self._find_made_from(pending.pop()):
                if made in seen or (spares_live and self.live[made]):
                    continue
                seen.add(made)
                use = self.find_next_use(made)
                need = min(need, use)
                if not self.live[made] or use == NEVER:
                    pending.append(made)
        return need

    def _find_made_from(self, tensor: TensorId) -> Iterator[TensorId]:
        """Yield what ops of earlier stages made by reading ``tensor`` and can make again."""
        tables = self.tables
        for reader in tables.readers[tensor]:
            if reader >= self.stage:
                return
            if tables.recomputable[reader]:
                yield from tables.makes[reader]

    def _pass_on_need(self, tensor: TensorId) -> None:
        """Note that ``tensor``, now missing, is needed, and so are those it has to be made from."""
        need = self.find_need(tensor)
        self._note_need(tensor, need)
        pending = [tensor]
        while pending:
            for read in self.tables.reads[self.tables.producers[pending.pop()]]:
                if not self.live[read] and self._needs[read] > need:
                    self._note_need(read, need)
                    pending.append(read)

    def _note_need(self, tensor: TensorId, need: int) -> None:
        """Note when ``tensor``, which is missing, is needed next."""
        self._needs[tensor] = need
        if need < NEVER:
            for read in self.tables.reads[self.tables.producers[tensor]]:
                heappush(self._missing.setdefault(read, []), (need, tensor))
