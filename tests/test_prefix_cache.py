"""The prefix cache alone: keys, order of eviction, partial matches."""

import pytest

from batchrunner.engine.block_pool import BlockPool
from batchrunner.engine.prefix_cache import MAX_PARTIAL_CANDIDATES, Node, PrefixCache


def build(num_blocks: int = 16, block_size: int = 2) -> tuple[BlockPool, PrefixCache]:
    pool = BlockPool(num_blocks, block_size)
    return pool, PrefixCache(pool)


def enter(pool: BlockPool, cache: PrefixCache, parent: Node, token_ids: list[int]) -> Node:
    """A node that nobody but the cache holds once release() is called on its block."""
    node = cache.insert(parent, token_ids, pool.allocate())
    node.computed = True
    return node


def test_a_key_covers_the_whole_prefix() -> None:
    pool, cache = build()
    left = enter(pool, cache, cache.root, [1, 2])
    right = enter(pool, cache, cache.root, [3, 4])
    below = enter(pool, cache, left, [5, 6])
    assert cache.child(left, [5, 6]) is below
    assert cache.child(right, [5, 6]) is None
    assert len({left.key, right.key, below.key}) == 3


def test_a_parent_never_leaves_before_its_child() -> None:
    pool, cache = build()
    parent = enter(pool, cache, cache.root, [1, 2])
    child = enter(pool, cache, parent, [3, 4])
    cache.release([parent.block, child.block])
    cache.hold(child)  # used last, and yet it must leave first
    cache.release([child.block])
    cache.evict()
    assert cache.child(cache.root, [1, 2]) is parent
    assert not parent.children
    cache.evict()
    assert len(cache) == 0
    assert pool.num_free == 16


def test_the_least_recently_used_leaf_leaves_first() -> None:
    pool, cache = build()
    nodes = [enter(pool, cache, cache.root, [i, i]) for i in range(3)]
    for node in nodes:
        cache.release([node.block])
    cache.hold(nodes[0])
    cache.release([nodes[0].block])
    left = []
    for _ in nodes:
        before = set(cache.cached_blocks)
        cache.evict()
        left += before - set(cache.cached_blocks)
    assert left == [nodes[1].block, nodes[2].block, nodes[0].block]


def test_a_block_in_use_is_not_evictable() -> None:
    pool, cache = build()
    used, unused = enter(pool, cache, cache.root, [1, 1]), enter(pool, cache, cache.root, [2, 2])
    cache.release([unused.block])
    assert cache.num_evictable == 1
    cache.evict()
    assert cache.cached_blocks == [used.block]
    assert cache.num_evictable == 0


def test_the_longest_partial_match_wins() -> None:
    pool, cache = build(block_size=4)
    enter(pool, cache, cache.root, [1, 2, 9, 9])
    best = enter(pool, cache, cache.root, [1, 2, 3, 9])
    enter(pool, cache, cache.root, [1, 9, 9, 9])
    match = cache.partial_child(cache.root, [1, 2, 3, 4])
    assert match is not None
    assert (match.node, match.num_tokens) == (best, 3)
    assert cache.partial_child(cache.root, [2, 2, 2, 2]) is None


def test_a_block_not_computed_yet_is_no_partial_match() -> None:
    pool, cache = build(block_size=4)
    cache.insert(cache.root, [1, 2, 3, 4], pool.allocate())
    assert cache.partial_child(cache.root, [1, 2, 5]) is None
    assert cache.child(cache.root, [1, 2, 3, 4]) is not None


def test_partial_candidates_are_bounded() -> None:
    pool, cache = build(num_blocks=100, block_size=2)
    nodes = [enter(pool, cache, cache.root, [1, i]) for i in range(3 * MAX_PARTIAL_CANDIDATES)]
    match = cache.partial_child(cache.root, [1, 99])
    assert match is not None
    assert match.node is nodes[-1]
    cache.check_integrity()


def test_the_heap_stays_small_when_one_leaf_is_used_again_and_again() -> None:
    pool, cache = build()
    node = enter(pool, cache, cache.root, [1, 1])
    cache.release([node.block])
    for _ in range(10_000):
        cache.hold(node)
        cache.release([node.block])
    assert len(cache._leaves) < 100
    cache.check_integrity()


def test_integrity_sees_a_leaked_block() -> None:
    pool, cache = build()
    pool.allocate()
    with pytest.raises(AssertionError, match="reference counts"):
        pool.check_integrity([], cache.cached_blocks)
