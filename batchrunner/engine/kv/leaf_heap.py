"""The order in which cached blocks leave: next use farthest ahead first, of equals the least recently used.

Only leaves leave, so that a parent never goes before its child.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Generic, Protocol, TypeVar

from batchrunner.engine.kv.foresight import NEVER, Foresight


class Block(Protocol):
    """A cached block, in whatever place. depth: how many blocks stand before it. last_used: a clock's reading."""

    key: bytes
    depth: int
    last_used: int


B = TypeVar("B", bound=Block)
Entry = tuple[float, int, int, int, B]  # minus next use, minus depth, last used, number, block


class LeafHeap(Generic[B]):
    """A heap with lazy deletion: an entry that was replaced, or whose block is no leaf any more, is skipped when it
    comes up."""

    def __init__(self, foresight: Foresight, is_leaf: Callable[[B], bool]) -> None:
        self._foresight = foresight
        self._is_leaf = is_leaf
        self._entries: list[Entry[B]] = []
        self._entry_of: dict[B, Entry[B]] = {}
        self._num_pushed = 0
        self._limit = 64

    def __len__(self) -> int:
        return len(self._entries)

    def push(self, block: B) -> None:
        """Enter a block that has become a leaf, was used, or whose next use has changed."""
        if len(self._entries) > self._limit:
            self._entries = [entry for entry in self._entries if self._is_current(entry)]
            self._entry_of = {entry[4]: entry for entry in self._entries}
            heapify(self._entries)
            self._limit = 64 + 4 * len(self._entries)
        self._num_pushed += 1
        next_use = self._foresight.next_use(block.key)
        # Blocks with the same next user are of one chain, and its end is of no use without its beginning.
        depth = 0 if next_use == NEVER else -block.depth
        entry = (-next_use, depth, block.last_used, self._num_pushed, block)
        self._entry_of[block] = entry
        heappush(self._entries, entry)

    def pop(self) -> B:
        """Take out the leaf that should leave first. There is one."""
        while True:
            entry = heappop(self._entries)
            if not self._is_current(entry):
                continue
            block = entry[4]
            if self._foresight.next_use(block.key) < -entry[0]:  # somebody has begun to wait for it
                self.push(block)
                continue
            del self._entry_of[block]
            return block

    def holds_all(self, leaves: list[B]) -> bool:
        """Whether every one of these can be popped; for check_integrity."""
        entered = {id(entry[4]) for entry in self._entries if self._is_current(entry)}
        return all(id(leaf) in entered for leaf in leaves)

    def _is_current(self, entry: Entry[B]) -> bool:
        return self._entry_of.get(entry[4]) is entry and self._is_leaf(entry[4])
