"""Cached blocks below one parent, found by how far they agree with the tokens that are wanted next."""

from bisect import bisect_left, insort
from typing import Generic, Protocol, TypeVar


class Sibling(Protocol):
    token_ids: list[int]
    computed: bool


S = TypeVar("S", bound=Sibling)


class Siblings(Generic[S]):
    """Sorted by their tokens: who agrees longest with given tokens stands beside where these would stand."""

    def __init__(self) -> None:
        self._sorted: list[S] = []

    def __len__(self) -> int:
        return len(self._sorted)

    def add(self, sibling: S) -> None:
        """No other has the same tokens."""
        insort(self._sorted, sibling, key=_tokens)

    def remove(self, sibling: S) -> None:
        place = bisect_left(self._sorted, sibling.token_ids, key=_tokens)
        assert self._sorted[place] is sibling
        del self._sorted[place]

    def nearest(self, token_ids: list[int]) -> S | None:
        """Who has the longest beginning in common with token_ids; of equals one that is computed."""
        place = bisect_left(self._sorted, token_ids, key=_tokens)
        beside = self._sorted[max(0, place - 1) : place + 1]
        return max(beside, key=lambda one: (num_common(one.token_ids, token_ids), one.computed), default=None)


def num_common(left: list[int], right: list[int]) -> int:
    length = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        length += 1
    return length


def _tokens(sibling: Sibling) -> list[int]:
    return sibling.token_ids
