"""Which blocks lie in the slots of one place below the device: host memory or disk."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from batchrunner.engine.kv.foresight import NEVER, Foresight
from batchrunner.engine.kv.leaf_heap import LeafHeap
from batchrunner.engine.kv.places import Place


@dataclass(eq=False, slots=True)
class StoredBlock:
    """A block in a slot. is_checked: its content was written in this run, or found right."""

    key: bytes
    parent_key: bytes
    depth: int
    slot: int
    num_uses: int = 0
    last_used: int = 0
    is_checked: bool = True


def _always_intact(slot: int, key: bytes) -> bool:
    return True


class Tier:
    """num_slots slots; kept: blocks that are there from an earlier run. Full, it gives up leaves in LeafHeap's order.

    is_intact is asked once for each kept block, before it is used the first time. on_discard is told of slots that hold
    no block any more.
    """

    def __init__(
        self,
        place: Place,
        num_slots: int,
        foresight: Foresight,
        kept: Iterable[StoredBlock] = (),
        is_intact: Callable[[int, bytes], bool] = _always_intact,
        on_discard: Callable[[int], None] | None = None,
    ) -> None:
        self.place = place
        self.num_slots = num_slots
        self.num_broken = 0  # kept blocks that were found damaged, and not used
        self._foresight = foresight
        self._is_intact = is_intact
        self._on_discard = on_discard
        self._blocks: dict[bytes, StoredBlock] = {}
        self._num_children: Counter[bytes] = Counter()
        self._leaves = LeafHeap[StoredBlock](foresight, self._is_leaf)
        self._clock = 0
        self._free = set(range(num_slots))
        for block in kept:
            if block.slot in self._free and block.key not in self._blocks:
                self._free.remove(block.slot)
                self._enter(block)

    def __len__(self) -> int:
        return len(self._blocks)

    def find(self, key: bytes) -> StoredBlock | None:
        """The block with this key, which counts as a use. A damaged one is thrown away."""
        block = self._blocks.get(key)
        if block is None:
            return None
        if not block.is_checked:
            if not self._is_intact(block.slot, key):
                self.num_broken += 1
                self.discard(key)
                return None
            block.is_checked = True
        self._touch(block)
        return block

    def leaving(self, key: bytes, depth: int) -> StoredBlock | None:
        """Whom the block with this key would push out: the first to leave, unless it is needed sooner.

        The caller has made sure that no slot is free. None: the tier keeps what it has.
        """
        first = self._leaves.pop()
        self._leaves.push(first)
        ours, theirs = self._foresight.next_use(key), self._foresight.next_use(first.key)
        is_same_chain = ours == theirs and ours < NEVER
        if ours > theirs or (is_same_chain and depth > first.depth):
            return None
        return first

    def peek(self, key: bytes) -> StoredBlock | None:
        """The block with this key, unchecked; no use."""
        return self._blocks.get(key)

    def next_use_changed(self, key: bytes) -> None:
        """Those who wait for the block are others than before."""
        block = self._blocks.get(key)
        if block is not None and self._is_leaf(block):
            self._leaves.push(block)

    @property
    def is_full(self) -> bool:
        return not self._free

    def put(self, key: bytes, parent_key: bytes, depth: int, num_uses: int) -> StoredBlock:
        """Give the block a slot, which the caller fills. There is a free one, and the block is not here yet."""
        block = StoredBlock(key, parent_key, depth, self._free.pop(), num_uses)
        self._enter(block)
        return block

    def discard(self, key: bytes) -> None:
        """Free the block's slot, if it has one."""
        block = self._blocks.pop(key, None)
        if block is None:
            return
        self._free.add(block.slot)
        if self._on_discard is not None:
            self._on_discard(block.slot)
        self._num_children[block.parent_key] -= 1
        if not self._num_children[block.parent_key]:
            del self._num_children[block.parent_key]
        parent = self._blocks.get(block.parent_key)
        if parent is not None and self._is_leaf(parent):
            self._leaves.push(parent)

    def blocks(self) -> list[StoredBlock]:
        return list(self._blocks.values())

    def check_integrity(self) -> None:
        slots = [block.slot for block in self._blocks.values()]
        assert len(set(slots)) == len(slots), "two blocks in one slot"
        assert self._free == set(range(self.num_slots)) - set(slots), "a slot leaked"
        children = Counter(block.parent_key for block in self._blocks.values())
        assert children == self._num_children
        assert self._leaves.holds_all([block for block in self._blocks.values() if self._is_leaf(block)])

    def _enter(self, block: StoredBlock) -> None:
        self._blocks[block.key] = block
        self._num_children[block.parent_key] += 1
        self._touch(block)

    def _touch(self, block: StoredBlock) -> None:
        self._clock += 1
        block.last_used = self._clock
        if self._is_leaf(block):
            self._leaves.push(block)

    def _is_leaf(self, block: StoredBlock) -> bool:
        return self._blocks.get(block.key) is block and block.key not in self._num_children
