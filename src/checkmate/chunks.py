"""onnxruntime's arena, request by request.

The arena ("best fit with coalescing", ``onnxruntime/core/framework/bfc_arena.cc``) asks the device
for regions and hands out chunks of them:

1. Sizes are rounded up to 256 bytes.
2. A request gets the smallest free chunk that holds it; of equal ones that at the lowest address.
   (Bins by power of two make the search faster, not different.)
3. The chunk is split when the request leaves at least half of it, or a stated number of bytes;
   else the request gets all of it.
4. When no chunk is large enough, the arena grows by a region of exactly the request, and fails
   when that would exceed its limit. Or its first region is as large as the limit.
5. A chunk that is given back merges with its free neighbours in the same region.
6. Regions are kept until the session ends.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from checkmate.placement import CHUNK_NBYTES, ArenaSetup, round_up


class Arena:
    """Free chunks and those in use, of regions that do not touch."""

    def __init__(self, setup: ArenaSetup, limit_nbytes: int) -> None:
        self._max_dead_nbytes = setup.max_dead_nbytes
        self._limit_nbytes = limit_nbytes // CHUNK_NBYTES * CHUNK_NBYTES
        self._free: list[tuple[int, int]] = []
        """Size and address of each free chunk, in the order in which requests get them."""
        self._size_at: dict[int, int] = {}
        """Per address where a free chunk starts: its size."""
        self._start_of: dict[int, int] = {}
        """Per address where a free chunk ends: where it starts."""
        self._used: dict[int, int] = {}
        self.reserved_nbytes = 0
        if setup.region == "whole" and self._limit_nbytes:
            self._grow(self._limit_nbytes)

    def allocate(self, nbytes: int) -> int | None:
        """Return the address of a chunk; None: it would exceed the limit."""
        size = round_up(nbytes)
        position = bisect_left(self._free, (size, 0))
        if position == len(self._free):
            if self.reserved_nbytes + size > self._limit_nbytes:
                return None
            self._grow(size)
            position = bisect_left(self._free, (size, 0))
        found, address = self._take(position)
        if found >= 2 * size or found - size >= self._max_dead_nbytes:
            self._put(address + size, found - size)
            found = size
        self._used[address] = found
        return address

    def release(self, address: int) -> None:
        """Take a chunk back."""
        size = self._used.pop(address)
        if address + size in self._size_at:
            size += self._take_at(address + size)
        if address in self._start_of:
            address = self._start_of[address]
            size += self._take_at(address)
        self._put(address, size)

    @property
    def largest_free_nbytes(self) -> int:
        """The largest request that no new region is needed for."""
        return self._free[-1][0] if self._free else 0

    def list_chunks(self) -> list[tuple[int, int, bool]]:
        """Return address, size and whether it is in use of each chunk, by address.

        Where the next address is not address plus size, another region begins.
        """
        used = [(address, size, True) for address, size in self._used.items()]
        return sorted([*used, *((address, size, False) for size, address in self._free)])

    def _grow(self, nbytes: int) -> None:
        # The gap keeps chunks of different regions from being neighbours.
        self._put(2 * self.reserved_nbytes + CHUNK_NBYTES, nbytes)
        self.reserved_nbytes += nbytes

    def _put(self, address: int, size: int) -> None:
        insort(self._free, (size, address))
        self._size_at[address] = size
        self._start_of[address + size] = address

    def _take(self, position: int) -> tuple[int, int]:
        size, address = self._free.pop(position)
        del self._size_at[address], self._start_of[address + size]
        return size, address

    def _take_at(self, address: int) -> int:
        return self._take(bisect_left(self._free, (self._size_at[address], address)))[0]
