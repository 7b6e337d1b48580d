"""Which cached blocks leave the device, and when."""

from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from batchrunner.engine.kv.chain import block_key, block_keys
from batchrunner.engine.kv.foresight import NEVER, Foresight, Unknown, WaitingRequests
from batchrunner.engine.kv.prefix_cache import Node
from batchrunner.engine.request import Request
from tests.engine.kv.cached_blocks import build, enter, waiting
from tests.engine.scheduling.schedulers import request


def test_a_parent_never_leaves_before_its_child() -> None:
    pool, cache = build()
    parent = enter(pool, cache, cache.root, [1, 2])
    child = enter(pool, cache, parent, [3, 4])
    cache.release([parent.block, child.block])
    cache.hold(child)  # used last, and yet it must leave first
    cache.release([child.block])
    assert cache.evict() is child
    assert cache.find(parent.key) is parent
    assert cache.find(child.key) is None
    assert not parent.children
    assert cache.evict() is parent
    assert (len(cache), cache.num_evictable, cache.num_evictions, pool.num_free) == (0, 0, 2, 16)


def test_the_least_recently_used_leaf_leaves_first() -> None:
    pool, cache = build()
    nodes = [enter(pool, cache, cache.root, [i, i]) for i in range(3)]
    for node in nodes:
        cache.release([node.block])
    cache.hold(nodes[0])
    cache.release([nodes[0].block])
    assert [cache.evict() for _ in nodes] == [nodes[1], nodes[2], nodes[0]]


def test_what_a_failed_step_should_have_computed_is_forgotten_with_all_below_it() -> None:
    pool, cache = build()
    parent = enter(pool, cache, cache.root, [1, 1])
    failed = enter(pool, cache, parent, [2, 2])
    below = enter(pool, cache, failed, [3, 3])
    cache.release([below.block])  # only the cache holds it
    cache.forget(failed)
    assert (cache.find(failed.key), cache.find(below.key), cache.find(parent.key)) == (None, None, parent)
    assert pool.ref_counts[failed.block] == 1, "its holder keeps the block"
    assert pool.ref_counts[below.block] == 0
    assert cache.num_evictable == 0
    assert cache.partial_child(parent, [2, 3]) is None
    cache.release([parent.block, failed.block])
    assert (pool.num_free, cache.num_evictable, len(cache)) == (15, 1, 1)
    cache.check_integrity()
    assert cache.evict() is parent


def test_a_parent_that_nobody_holds_can_leave_once_its_child_is_forgotten() -> None:
    pool, cache = build()
    parent = enter(pool, cache, cache.root, [1, 1])
    failed = enter(pool, cache, parent, [2, 2])
    cache.release([parent.block, failed.block])  # its request was preempted in the step that was to compute it
    cache.forget(failed)
    cache.check_integrity()
    assert cache.num_evictable == 1
    assert cache.evict() is parent


def test_who_has_left_before_is_not_forgotten_again() -> None:
    pool, cache = build(num_blocks=1)
    old = enter(pool, cache, cache.root, [1, 1])
    cache.release([old.block])
    cache.evict()
    new = enter(pool, cache, cache.root, [2, 2])
    assert new.block == old.block
    cache.forget(old)
    assert cache.find(new.key) is new
    pool.check_integrity([[new.block]], cache.cached_blocks)


def test_blocks_leave_by_their_next_use() -> None:
    foresight = WaitingRequests(block_size=2)
    pool, cache = build(foresight=foresight)
    soon, never, late = (enter(pool, cache, cache.root, [i, i]) for i in range(3))
    foresight.add(waiting(1, 0, 0))
    for node in (soon, never, late):
        cache.release([node.block])
    foresight.add(waiting(2, 2, 2))
    assert [cache.evict() for _ in range(3)] == [never, late, soon]


def test_a_block_leaves_once_those_who_waited_for_it_wait_no_more() -> None:
    foresight = WaitingRequests(block_size=2)
    pool, cache = build(foresight=foresight)
    soon, late = (enter(pool, cache, cache.root, [i, i]) for i in range(2))
    first, second = waiting(1, 0, 0), waiting(2, 1, 1)
    foresight.add(first)
    foresight.add(second)
    cache.release([soon.block, late.block])
    foresight.remove(first)
    cache.next_use_changed(soon.key)
    assert [cache.evict(), cache.evict()] == [soon, late]


def test_blocks_that_do_not_leave_take_no_notice_of_who_waits() -> None:
    pool, cache = build()
    parent = enter(pool, cache, cache.root, [1, 1])
    child = enter(pool, cache, parent, [2, 2])
    cache.release([parent.block])
    for key in (parent.key, child.key, block_key(parent.key, [9, 9])):  # has a child, is held, is not here
        cache.next_use_changed(key)
    assert len(cache._leaves) == 0


@settings(max_examples=200, deadline=None)
@given(
    prompts=st.lists(st.lists(st.integers(1, 2), min_size=1, max_size=5), min_size=1, max_size=25),
    num_blocks=st.integers(5, 9),
    num_ahead=st.integers(0, 6),
)
def test_eviction_is_belady_s(prompts: list[list[int]], num_blocks: int, num_ahead: int) -> None:
    """Requests run one after the other, num_ahead wait behind each; against next uses found by scanning them."""
    foresight = WaitingRequests(block_size=1)
    pool, cache = build(num_blocks, 1, foresight)
    queue = [waiting(number, *prompt) for number, prompt in enumerate(prompts)]
    for item in queue[:num_ahead]:
        foresight.add(item)

    def order(node: Node, left: list[Request]) -> tuple[float, int, int]:
        next_use = next((item.number for item in left if node.key in block_keys(item, 1)), NEVER)
        return next_use, node.depth if next_use < NEVER else 0, -node.last_used

    for index, item in enumerate(queue):
        foresight.remove(item)
        for key in item.block_keys:
            cache.next_use_changed(key)
        known = queue[index + 1 : index + num_ahead + 1]
        if num_ahead and index + num_ahead < len(queue):
            foresight.add(queue[index + num_ahead])
        node, table = cache.root, []
        for key, token_id in zip(block_keys(item, 1), item.token_ids, strict=True):
            found = cache.find(key)
            if found is not None:
                cache.hold(found)
            elif not pool.num_free:
                leaves = [node for node in cache.nodes() if not node.children and not cache.is_held(node)]
                assert cache.evict() is max(leaves, key=lambda node: order(node, known))
            node = found or enter(pool, cache, node, [token_id])
            table.append(node.block)
            pool.check_integrity([table], cache.cached_blocks)
            cache.check_integrity()
        cache.release(table)


def test_the_heap_stays_small_when_one_leaf_is_used_again_and_again() -> None:
    pool, cache = build()
    node = enter(pool, cache, cache.root, [1, 1])
    cache.release([node.block])
    for _ in range(10_000):
        cache.hold(node)
        cache.release([node.block])
    assert len(cache._leaves) < 100
    cache.check_integrity()


chains = st.lists(st.integers(1, 2), min_size=1, max_size=4)


class CacheMachine(RuleBasedStateMachine):
    """Requests take and give back blocks of one token, wait and wait no more, and steps fail."""

    @initialize(num_blocks=st.integers(4, 9), has_foresight=st.booleans())
    def start(self, num_blocks: int, has_foresight: bool) -> None:
        self.foresight: Foresight = WaitingRequests(1) if has_foresight else Unknown()
        self.pool, self.cache = build(num_blocks, 1, self.foresight)
        self.tables: list[list[int]] = []
        self.waiting: list[Request] = []
        self.numbers = count()

    @rule(chain=chains)
    def runs(self, chain: list[int]) -> None:
        table: list[int] = []
        parent = self.cache.root
        for key, token_id in zip(block_keys(request(chain), 1), chain, strict=True):
            if (found := self.cache.find(key)) is not None:
                self.cache.hold(found)
            elif self.pool.num_free + self.cache.num_evictable == 0:
                break
            elif not self.pool.num_free:
                self.evicts()
            parent = found or enter(self.pool, self.cache, parent, [token_id])
            table.append(parent.block)
        self.tables.append(table)

    @rule(pick=st.integers(0, 5))
    def ends(self, pick: int) -> None:
        if self.tables:
            self.cache.release(self.tables.pop(pick % len(self.tables)))

    @rule(chain=chains)
    def begins_to_wait(self, chain: list[int]) -> None:
        self.waiting.append(waiting(next(self.numbers), *chain))
        self.foresight.add(self.waiting[-1])

    @rule(pick=st.integers(0, 5))
    def waits_no_more(self, pick: int) -> None:
        if self.waiting:
            item = self.waiting.pop(pick % len(self.waiting))
            self.foresight.remove(item)
            for key in item.block_keys:
                self.cache.next_use_changed(key)

    @rule(chain=chains)
    def was_never_computed(self, chain: list[int]) -> None:
        found = self.cache.find(block_keys(request(chain), 1)[-1])
        if found is not None:
            self.cache.forget(found)

    @precondition(lambda self: hasattr(self, "cache") and self.cache.num_evictable)
    @rule()
    def evicts(self) -> None:
        leaves = [node for node in self.cache.nodes() if not node.children and not self.cache.is_held(node)]
        assert self.cache.evict() is max(leaves, key=self.order)

    def order(self, node: Node) -> tuple[float, int, int]:
        next_use = self.foresight.next_use(node.key)
        return next_use, node.depth if next_use < NEVER else 0, -node.last_used

    @invariant()
    def everything_is_accounted_for(self) -> None:
        if hasattr(self, "cache"):
            self.pool.check_integrity(self.tables, self.cache.cached_blocks)
            self.cache.check_integrity()


TestCacheMachine = CacheMachine.TestCase
TestCacheMachine.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
