"""The last lengths of one class of requests, in order of time to forget them and in order of size to ask them."""

from bisect import bisect_left, bisect_right, insort
from collections import deque
from math import ceil


class RecentLengths:
    """The last `window` lengths. A quantile costs O(log window)."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._by_time: deque[int] = deque()
        self._by_size: list[int] = []

    def __len__(self) -> int:
        return len(self._by_size)

    def add(self, length: int) -> None:
        if len(self._by_time) == self._window:
            del self._by_size[bisect_left(self._by_size, self._by_time.popleft())]
        self._by_time.append(length)
        insort(self._by_size, length)

    def quantile(self, quantile: float, beyond: int) -> int:
        """The quantile of the lengths greater than beyond; where there are none, the greatest length.

        It is a length that occurred: the smallest that this share of them does not exceed.
        """
        begin = bisect_right(self._by_size, beyond)
        rank = max(1, ceil(quantile * (len(self) - begin)))
        return self._by_size[min(begin + rank, len(self)) - 1]

    def in_order_of_time(self) -> list[int]:
        return list(self._by_time)
