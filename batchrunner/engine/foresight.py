"""When a cached block will be needed again.

Offline the work is known: the requests that wait name the blocks they will ask for. Evicting the block whose next use
lies farthest ahead is optimal (Belady, "A study of replacement algorithms for a virtual-storage computer", 1966). Where
requests wait in the order in which they will run, their numbers are that future; a policy that reorders them makes it
an approximation, but a block that nobody waits for still leaves first.
"""

import math
from heapq import heappop, heappush
from typing import Protocol

from batchrunner.engine.chain import block_keys
from batchrunner.engine.request import Request

NEVER = math.inf
MIN_CLEARED = 64  # a shorter list of users is cleared as its first ones come up


class Foresight(Protocol):
    def add(self, request: Request) -> None:
        """A request begins to wait; it will ask for the blocks of its tokens."""

    def remove(self, request: Request) -> None:
        """It waits no more."""

    def next_use(self, key: bytes) -> float:
        """The number of the first waiting request that will ask for the block; NEVER if none is known."""

    def is_wanted(self, key: bytes) -> bool:
        """Whether the block may be asked for again."""


class WaitingRequests:
    """Foresight from those who wait."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._waiting: set[int] = set()
        self._users: dict[bytes, list[int]] = {}  # heaps of numbers; those who wait no more leave when they come up

    def add(self, request: Request) -> None:
        self._waiting.add(request.number)
        for key in block_keys(request, self._block_size):
            users = self._users.setdefault(key, [])
            if len(users) >= MIN_CLEARED and len(users).bit_count() == 1:  # at every doubling
                users[:] = sorted(self._waiting.intersection(users))
            heappush(users, request.number)

    def remove(self, request: Request) -> None:
        self._waiting.discard(request.number)
        for key in request.block_keys:
            self.next_use(key)  # clears the heap, so that memory follows those who wait

    def next_use(self, key: bytes) -> float:
        users = self._users.get(key)
        if users is None:
            return NEVER
        while users and users[0] not in self._waiting:
            heappop(users)
        if not users:
            del self._users[key]
            return NEVER
        return users[0]

    def is_wanted(self, key: bytes) -> bool:
        return self.next_use(key) < NEVER


class Unknown:
    """No foresight: any block may be asked for again, and the least recently used one leaves first."""

    def add(self, request: Request) -> None:
        pass

    def remove(self, request: Request) -> None:
        pass

    def next_use(self, key: bytes) -> float:
        return NEVER

    def is_wanted(self, key: bytes) -> bool:
        return True
