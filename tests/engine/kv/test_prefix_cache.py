"""The prefix cache alone: keys, holders, partial matches."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchrunner.engine.kv.chain import ROOT_KEY, block_key, block_keys
from batchrunner.engine.kv.siblings import num_common
from tests.engine.kv.cached_blocks import build, enter
from tests.engine.scheduling.schedulers import request


def test_a_key_covers_the_whole_prefix() -> None:
    pool, cache = build()
    left = enter(pool, cache, cache.root, [1, 2])
    right = enter(pool, cache, cache.root, [3, 4])
    below = enter(pool, cache, left, [5, 6])
    assert cache.find(block_keys(request([1, 2, 5, 6]), 2)[-1]) is below
    assert cache.find(block_keys(request([3, 4, 5, 6]), 2)[-1]) is None
    assert len({left.key, right.key, below.key}) == 3
    assert (left.parent_key, below.parent_key) == (ROOT_KEY, left.key)
    assert [cache.node_of(node.block) for node in (left, right, below)] == [left, right, below]


def test_a_block_in_use_is_not_evictable() -> None:
    pool, cache = build()
    used, unused = enter(pool, cache, cache.root, [1, 1]), enter(pool, cache, cache.root, [2, 2])
    cache.release([unused.block])
    cache.release([used.block])
    assert cache.num_evictable == 2
    for _ in range(2):
        cache.hold(used)
    assert (cache.is_held(used), cache.is_held(unused), cache.num_evictable) == (True, False, 1)
    assert cache.evict() is unused
    assert cache.cached_blocks == [used.block]
    cache.release([used.block])
    assert cache.num_evictable == 0  # of two holders one is left
    cache.check_integrity()


def test_who_holds_a_block_is_no_use_of_it() -> None:
    """BlockTables counts those: it knows whether a request has had the block before."""
    pool, cache = build()
    node = enter(pool, cache, cache.root, [1, 1])
    cache.hold(node)
    cache.release([node.block])
    cache.hold(node)
    assert node.num_uses == 0


def test_the_longest_partial_match_wins() -> None:
    pool, cache = build(block_size=4)
    enter(pool, cache, cache.root, [1, 2, 9, 9])
    best = enter(pool, cache, cache.root, [1, 2, 3, 9])
    enter(pool, cache, cache.root, [1, 9, 9, 9])
    match = cache.partial_child(cache.root, [1, 2, 3, 4])
    assert match is not None
    assert (match.node, match.num_tokens) == (best, 3)
    assert cache.partial_child(cache.root, [2, 2, 2, 2]) is None
    assert cache.partial_child(best, [1, 2, 3, 4]) is None


def test_of_equally_long_partial_matches_one_that_is_computed_is_taken() -> None:
    pool, cache = build(block_size=4)
    computed = enter(pool, cache, cache.root, [1, 2, 3, 4])
    planned = enter(pool, cache, cache.root, [1, 2, 9, 9])
    planned.computed = False
    short, long = cache.partial_child(cache.root, [1, 2, 5]), cache.partial_child(cache.root, [1, 2, 9, 5])
    assert short is not None and short.node is computed
    assert long is not None and (long.node, long.num_tokens) == (planned, 3)


def test_a_part_of_a_block_grows_to_a_whole_one() -> None:
    pool, cache = build(block_size=4)
    part = enter(pool, cache, cache.root, [1, 2])
    assert not cache.is_whole(part)
    key = block_key(ROOT_KEY, [1, 2, 3, 4])
    whole = cache.grow(part, key, [1, 2, 3, 4])
    assert cache.is_whole(whole) and cache.find(key) is whole
    assert cache.find(block_key(ROOT_KEY, [1, 2])) is None
    match = cache.partial_child(cache.root, [1, 2, 3])
    assert match is not None and match.num_tokens == 3
    cache.check_integrity()


@settings(max_examples=200, deadline=None)
@given(
    blocks=st.sets(st.tuples(*[st.integers(1, 3)] * 4), min_size=1, max_size=40),
    gone=st.sets(st.integers(0, 39)),
    wanted=st.lists(st.integers(1, 3), min_size=1, max_size=4),
)
def test_however_many_siblings_there_are_the_longest_match_is_found(
    blocks: set[tuple[int, ...]], gone: set[int], wanted: list[int]
) -> None:
    pool, cache = build(num_blocks=100, block_size=4)
    left = {}
    for number, tokens in enumerate(sorted(blocks, key=hash)):
        node = enter(pool, cache, cache.root, list(tokens))
        if number in gone:
            cache.forget(node)
        else:
            left[tokens] = node
    match = cache.partial_child(cache.root, wanted)
    lengths = [num_common(list(tokens), wanted) for tokens in left]
    assert (0 if match is None else match.num_tokens) == max(lengths, default=0)


def test_a_block_that_left_is_no_partial_match() -> None:
    pool, cache = build()
    node = enter(pool, cache, cache.root, [1, 2])
    cache.release([node.block])
    cache.evict()
    assert cache.partial_child(cache.root, [1, 3]) is None


def test_nodes_come_after_their_parents() -> None:
    pool, cache = build()
    first = enter(pool, cache, cache.root, [1, 1])
    branches = [enter(pool, cache, first, [i, i]) for i in range(3)]
    nodes = [first, *branches, *(enter(pool, cache, branch, [9, 9]) for branch in branches)]
    found = list(cache.nodes())
    assert sorted(map(id, found)) == sorted(map(id, nodes))
    assert all(node.parent is cache.root or found.index(node.parent) < i for i, node in enumerate(found) if node.parent)


def test_integrity_sees_a_leaked_block() -> None:
    pool, cache = build()
    pool.allocate()
    with pytest.raises(AssertionError, match="reference counts"):
        pool.check_integrity([], cache.cached_blocks)


def test_integrity_sees_a_child_that_outlives_its_parent() -> None:
    pool, cache = build()
    parent = enter(pool, cache, cache.root, [1, 1])
    enter(pool, cache, parent, [2, 2])
    cache.release([parent.block])
    with pytest.raises(AssertionError, match="outlives"):
        cache.check_integrity()
