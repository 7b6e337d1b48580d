"""In which order cached blocks leave."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from batchrunner.engine.kv.foresight import NEVER
from batchrunner.engine.kv.leaf_heap import LeafHeap
from batchrunner.engine.request import Request


@dataclass(eq=False)
class Cached:
    key: bytes
    depth: int = 1
    last_used: int = 0
    num_children: int = 0


class Future:
    """Foresight that is told."""

    def __init__(self) -> None:
        self.next_uses: dict[bytes, float] = {}

    def add(self, request: Request) -> None:
        raise NotImplementedError

    def remove(self, request: Request) -> None:
        raise NotImplementedError

    def next_use(self, key: bytes) -> float:
        return self.next_uses.get(key, NEVER)

    def is_wanted(self, key: bytes) -> bool:
        raise NotImplementedError


class Leaves:
    """A heap of blocks that are used one after the other."""

    def __init__(self) -> None:
        self.future = Future()
        self.heap = LeafHeap[Cached](self.future, lambda block: block.num_children == 0)
        self.blocks: list[Cached] = []
        self._clock = 0

    def enter(self, next_use: float, depth: int = 1) -> Cached:
        block = Cached(b"%d" % len(self.blocks), depth)
        self.future.next_uses[block.key] = next_use
        self.blocks.append(block)
        self.use(block)
        return block

    def use(self, block: Cached) -> None:
        self._clock += 1
        block.last_used = self._clock
        self.heap.push(block)

    def pop(self) -> int:
        """Which of the blocks leaves, by the order in which they were entered."""
        block = self.heap.pop()
        block.num_children = -1  # it is no leaf any more
        return self.blocks.index(block)


def test_the_next_use_farthest_ahead_leaves_first() -> None:
    leaves = Leaves()
    for next_use in (5, 1, 9, 3):
        leaves.enter(next_use)
    assert [leaves.pop() for _ in range(4)] == [2, 0, 3, 1]


def test_what_is_never_needed_leaves_before_all_the_least_recently_used_first() -> None:
    leaves = Leaves()
    for next_use in (1000, NEVER, 2000, NEVER, NEVER):
        leaves.enter(next_use)
    leaves.use(leaves.blocks[1])
    assert [leaves.pop() for _ in range(5)] == [3, 4, 1, 2, 0]


def test_of_one_chain_the_deeper_leaves_first() -> None:
    leaves = Leaves()
    for depth in (2, 7, 4):  # what lies between them is in another place, so that all are leaves
        leaves.enter(6, depth)
    leaves.enter(8)
    leaves.enter(5, depth=50)
    assert [leaves.pop() for _ in range(5)] == [3, 1, 2, 0, 4]


def test_depth_does_not_count_among_those_that_are_never_needed() -> None:
    leaves = Leaves()
    for depth in (2, 7, 1):
        leaves.enter(NEVER, depth)
    assert [leaves.pop() for _ in range(3)] == [0, 1, 2]


def test_a_block_that_somebody_begins_to_wait_for_stays() -> None:
    leaves = Leaves()
    for next_use in (NEVER, 7, NEVER, 20):
        leaves.enter(next_use)
    leaves.future.next_uses[leaves.blocks[0].key] = 9
    leaves.future.next_uses[leaves.blocks[3].key] = 1
    assert [leaves.pop() for _ in range(4)] == [2, 0, 1, 3]


def test_what_is_no_leaf_any_more_is_skipped() -> None:
    leaves = Leaves()
    for next_use in (3, 2, 1):
        leaves.enter(next_use)
    leaves.blocks[0].num_children = 1
    assert leaves.pop() == 1
    leaves.blocks[0].num_children = 0
    leaves.heap.push(leaves.blocks[0])
    assert [leaves.pop(), leaves.pop()] == [0, 2]


def test_used_again_and_again_a_heap_stays_small_and_loses_nobody() -> None:
    leaves = Leaves()
    for i in range(300):
        leaves.enter(i)
    for _ in range(30):
        for block in leaves.blocks:
            leaves.use(block)
    assert len(leaves.heap) < 2000
    assert leaves.heap.holds_all(leaves.blocks)
    assert [leaves.pop() for _ in range(300)] == list(range(299, -1, -1))


def test_a_block_entered_again_has_one_entry_the_newest() -> None:
    leaves = Leaves()
    first, second = leaves.enter(3), leaves.enter(5)
    leaves.future.next_uses[first.key] = 9  # the first who waited waits no more
    for _ in range(10):
        leaves.heap.push(first)
    assert leaves.heap.pop() is first
    assert leaves.heap.pop() is second, "first is still a leaf, but it has been taken out"


def test_entered_again_and_again_without_a_use_a_block_takes_no_more_room() -> None:
    leaves = Leaves()
    block = leaves.enter(1)
    for _ in range(10_000):
        leaves.heap.push(block)
    assert len(leaves.heap) < 100
    assert leaves.heap.holds_all([block])


def test_it_says_whether_a_leaf_was_lost() -> None:
    leaves = Leaves()
    first, second = leaves.enter(1), leaves.enter(2)
    assert leaves.heap.holds_all([first, second])
    assert leaves.pop() == 1
    second.num_children = 0  # a leaf again, and not entered
    assert not leaves.heap.holds_all([first, second])
    assert leaves.heap.holds_all([first])


@settings(max_examples=300, deadline=None)
@given(
    next_uses=st.lists(st.one_of(st.integers(0, 9), st.just(NEVER)), min_size=1, max_size=12),
    changes=st.lists(
        st.tuples(st.integers(0, 11), st.sampled_from(["sooner", "change", "use", "leave"]), st.integers(0, 9))
    ),
)
def test_the_order_is_that_of_a_sort(next_uses: list[float], changes: list[tuple[int, str, int]]) -> None:
    """Each change lets a block be needed sooner, be needed at another time and entered again, be used, or (whichever is
    first) leave."""
    leaves = Leaves()
    for index, next_use in enumerate(next_uses):
        leaves.enter(next_use, depth=index % 4)
    present = list(leaves.blocks)

    def order(block: Cached) -> tuple[float, int, int]:
        next_use = leaves.future.next_use(block.key)
        return -next_use, -block.depth if next_use < NEVER else 0, block.last_used

    for pick, change, number in [*changes, *[(0, "leave", 0)] * len(present)]:
        if not present:
            return
        block = present[pick % len(present)]
        if change == "sooner":
            leaves.future.next_uses[block.key] = min(number, leaves.future.next_use(block.key))
        elif change == "change":
            leaves.future.next_uses[block.key] = number if number < 9 else NEVER
            leaves.heap.push(block)
        elif change == "use":
            leaves.use(block)
        else:
            first = min(present, key=order)
            assert leaves.blocks[leaves.pop()] is first
            present.remove(first)
