"""One place below the device: which blocks lie in its slots, and which of them leaves first."""

from hypothesis import given, settings
from hypothesis import strategies as st

from batchrunner.engine.kv.foresight import NEVER, Unknown, WaitingRequests
from batchrunner.engine.kv.places import Place
from batchrunner.engine.kv.tiers.tier import StoredBlock, Tier
from batchrunner.engine.request import Request
from tests.engine.kv.cached_blocks import kept, node, put, waiting

HOST, DISK = Place.HOST, Place.DISK


def test_a_block_is_found_until_it_is_discarded() -> None:
    tier = Tier(HOST, 2, Unknown())
    first, second = put(tier, 1), put(tier, 1, 2)
    assert {first.slot, second.slot} == {0, 1}
    assert (tier.is_full, len(tier)) == (True, 2)
    assert tier.find(node(1).key) is first
    assert tier.find(node(2).key) is None
    tier.discard(first.key)
    tier.discard(first.key)
    assert tier.find(first.key) is None
    assert (tier.is_full, tier.blocks()) == (False, [second])
    assert put(tier, 2).slot == first.slot
    tier.check_integrity()


def test_without_foresight_the_least_recently_used_leaf_leaves() -> None:
    tier = Tier(HOST, 3, Unknown())
    parent, child, other = put(tier, 1), put(tier, 1, 2), put(tier, 3)
    tier.find(child.key)
    assert tier.leaving(node(9).key, 1) is other
    tier.find(other.key)
    assert tier.leaving(node(9).key, 1) is child, "its parent is used less, and no leaf"
    tier.discard(child.key)
    assert tier.leaving(node(9).key, 1) is parent
    tier.check_integrity()


def test_a_full_tier_keeps_what_is_needed_sooner() -> None:
    foresight = WaitingRequests(1)
    for item in (waiting(1, 1), waiting(2, 2, 3), waiting(3, 4)):
        foresight.add(item)
    tier = Tier(HOST, 2, foresight)
    put(tier, 1)
    second = put(tier, 2)
    assert tier.leaving(node(4).key, 1) is None
    assert tier.leaving(node(2, 3).key, 2) is None, "of one chain the end is not stored before the beginning"
    tier.discard(second.key)
    end = put(tier, 2, 3)
    assert tier.leaving(node(2).key, 1) is end
    tier.discard(node(1).key)
    never = put(tier, 7)
    assert tier.leaving(node(4).key, 1) is never
    assert tier.leaving(node(8, 9).key, 2) is never, "of two that are never needed the newer stays"


def test_kept_blocks_lie_in_their_slots() -> None:
    blocks = [kept(2, 1), kept(2, 5), kept(0, 1, 2), kept(1, 1), kept(3, 6)]
    tier = Tier(DISK, 3, Unknown(), blocks)
    assert tier.blocks() == [blocks[0], blocks[2]], "one block a slot, one slot a block, and slots that there are"
    assert put(tier, 7).slot == 1
    tier.check_integrity()


def test_a_damaged_kept_block_is_thrown_away_and_counted_once() -> None:
    asked: list[tuple[int, bytes]] = []
    good, bad = kept(0, 1), kept(1, 2)

    def is_intact(slot: int, key: bytes) -> bool:
        asked.append((slot, key))
        return slot == 0

    tier = Tier(DISK, 3, Unknown(), [good, bad], is_intact)
    new = put(tier, 3)
    assert [[tier.find(block.key) for block in (good, bad, new)] for _ in range(2)] == [[good, None, new]] * 2
    assert asked == [(0, good.key), (1, bad.key)]
    assert tier.num_broken == 1
    assert put(tier, 2).slot == 1
    tier.check_integrity()


def test_to_peek_at_a_block_is_no_use_of_it_and_reads_nothing() -> None:
    def is_intact(slot: int, key: bytes) -> bool:
        raise NotImplementedError

    old = kept(0, 1)
    tier = Tier(DISK, 2, Unknown(), [old], is_intact)
    put(tier, 2)
    assert (tier.peek(old.key), tier.peek(node(7).key)) == (old, None)
    assert not old.is_checked
    assert tier.leaving(node(9).key, 1) is old, "the least recently used"


def test_it_tells_of_slots_that_hold_no_block_any_more() -> None:
    freed: list[int] = []
    old = [kept(0, 1), kept(1, 2), kept(2, 3), kept(2, 4)]  # the last one has no slot
    tier = Tier(DISK, 4, Unknown(), old, lambda slot, key: slot != 1, freed.append)
    new = put(tier, 5)
    assert freed == []
    tier.find(node(2).key)  # damaged
    for token_id in (3, 3, 5, 8):
        tier.discard(node(token_id).key)
    assert freed == [1, 2, new.slot]


def test_a_block_whose_next_user_waits_no_more_leaves_first() -> None:
    foresight = WaitingRequests(1)
    cancelled, other = waiting(1, 1), waiting(2, 2)
    foresight.add(cancelled)
    foresight.add(other)
    tier = Tier(HOST, 2, foresight)
    nobody_s, wanted = put(tier, 1), put(tier, 2)
    foresight.add(waiting(0, 3))
    assert tier.leaving(node(3).key, 1) is wanted
    foresight.remove(cancelled)
    tier.next_use_changed(nobody_s.key)
    assert tier.leaving(node(3).key, 1) is nobody_s
    tier.check_integrity()


def test_blocks_that_come_and_go_do_not_make_it_grow() -> None:
    tier, most = Tier(HOST, 3, Unknown()), 0
    put(tier, 1)
    put(tier, 2)
    for _ in range(10_000):
        tier.discard(put(tier, 1, 5).key)  # each time its parent becomes a leaf again, unused
        most = max(most, len(tier._leaves))
    assert most < 100
    tier.check_integrity()


chains = st.lists(st.integers(0, 1), min_size=1, max_size=3)


@settings(max_examples=200, deadline=None)
@given(changes=st.lists(st.tuples(st.sampled_from(["put", "find", "discard", "wait", "end"]), chains), max_size=40))
def test_the_first_to_leave_is_that_of_a_sort(changes: list[tuple[str, list[int]]]) -> None:
    """Blocks come, are used and go, requests wait for them and end, in any order."""
    foresight = WaitingRequests(1)
    tier = Tier(HOST, 99, foresight)
    urgent = waiting(-1, 99)  # needed before all others, so that somebody leaves for it
    foresight.add(urgent)
    who_wait: list[Request] = []

    def order(block: StoredBlock) -> tuple[float, int, int]:
        next_use = foresight.next_use(block.key)
        return next_use, block.depth if next_use < NEVER else 0, -block.last_used

    for number, (change, chain) in enumerate(changes):
        key = node(*chain).key
        if change == "put" and tier.peek(key) is None:
            put(tier, *chain)
        elif change == "find":
            tier.find(key)
        elif change == "discard":
            tier.discard(key)
        elif change == "wait":
            who_wait.append(waiting(number, *chain))
            foresight.add(who_wait[-1])
        elif change == "end" and who_wait:
            item = who_wait.pop(sum(chain) % len(who_wait))
            foresight.remove(item)
            for key in item.block_keys:
                tier.next_use_changed(key)
        parents = {block.parent_key for block in tier.blocks()}
        leaves = [block for block in tier.blocks() if block.key not in parents]
        if leaves:
            assert tier.leaving(urgent.block_keys[0], 1) is max(leaves, key=order)
        tier.check_integrity()
