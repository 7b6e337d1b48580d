"""When a cached block will be needed again.

Offline the work is known: the requests that wait name the blocks they will ask for. Evicting the block whose next use
lies farthest ahead is optimal (Belady, "A study of replacement algorithms for a virtual-storage computer", 1966). Where
requests wait in the order in which they will run, their numbers are that future; a policy that reorders them makes it
an approximation, but a block that nobody waits for still leaves first.
"""

import math
from heapq import heappop, heappush
from typing import Protocol

from batchrunner.engine.kv.chain import block_keys
from batchrunner.engine.request import Request

NEVER = math.inf
LATER = 2.0**62  # by a request that is not here yet: after all that are
MIN_CLEARED = 64  # a shorter list of users is cleared as its first ones come up


class Foresight(Protocol):
    def arrived(self, request: Request) -> None:
        """A new request, that says what those which come after it will ask for."""

    def add(self, request: Request) -> None:
        """A request begins to wait; it will ask for the blocks of its tokens."""

    def remove(self, request: Request) -> None:
        """It waits no more."""

    def next_use(self, key: bytes) -> float:
        """The number of the first waiting request that will ask for the block; LATER if others will, NEVER if none is
        known."""

    def is_wanted(self, key: bytes) -> bool:
        """Whether the block may be asked for again."""


class WaitingRequests:
    """Foresight from those who wait, and from what they say of those who come later."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._waiting: set[int] = set()
        self._users: dict[bytes, list[int]] = {}  # heaps of numbers; those who wait no more leave when they come up
        self._later: set[bytes] = set()  # what requests that are not here yet will ask for

    def arrived(self, request: Request) -> None:
        num_later = request.num_shared_later // self._block_size
        keys = block_keys(request, self._block_size)
        self._later.update(keys[:num_later])
        self._later.difference_update(keys[num_later:])

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
        while users and users[0] not in self._waiting:
            heappop(users)
        if users:
            return users[0]
        if users is not None:
            del self._users[key]
        return LATER if key in self._later else NEVER

    def is_wanted(self, key: bytes) -> bool:
        return self.next_use(key) < NEVER


class Unknown:
    """No foresight: any block may be asked for again, and the least recently used one leaves first."""

    def arrived(self, request: Request) -> None:
        pass

    def add(self, request: Request) -> None:
        pass

    def remove(self, request: Request) -> None:
        pass

    def next_use(self, key: bytes) -> float:
        return NEVER

    def is_wanted(self, key: bytes) -> bool:
        return True
