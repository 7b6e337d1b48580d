"""The requests that wait, in the order of the policy."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from batchrunner.engine.request import Request
from batchrunner.engine.scheduling.policies.policy import Policy, Rank

Entry = tuple[Rank, int, Request]  # the number makes entries of one rank comparable


class WaitingQueue:
    """A heap with lazy deletion: push and pop cost the logarithm of those who wait, whoever leaves from the middle."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._entries: list[Entry] = []
        self._entry_of: dict[Request, Entry] = {}

    def __len__(self) -> int:
        return len(self._entry_of)

    def __contains__(self, request: object) -> bool:
        return request in self._entry_of

    def __iter__(self) -> Iterator[Request]:
        return iter(self._entry_of)

    def push(self, request: Request) -> None:
        entry = (self._policy.rank(request), request.number, request)
        self._entry_of[request] = entry
        heappush(self._entries, entry)

    def first(self) -> Request | None:
        """The request to admit next; it stays."""
        while self._entries:
            request = self._entries[0][2]
            if self._entry_of.get(request) is self._entries[0]:
                return request
            heappop(self._entries)
        return None

    def remove(self, request: Request) -> None:
        del self._entry_of[request]
        if len(self._entries) > 2 * len(self._entry_of) + 64:
            self._entries = list(self._entry_of.values())
            heapify(self._entries)

    def rank_again(self, request: Request) -> None:
        """The policy ranks the request otherwise than when it was pushed."""
        self.remove(request)
        self.push(request)
