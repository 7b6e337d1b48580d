"""The places below the device together: which moves bring blocks there and back."""

from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from batchrunner.engine.kv.chain import ROOT_KEY
from batchrunner.engine.kv.foresight import Unknown, WaitingRequests
from batchrunner.engine.kv.places import Move, Place
from batchrunner.engine.kv.swap_choice import CheaperOne, MeasuredCosts
from batchrunner.engine.kv.tiers.lower_tiers import LowerTiers
from batchrunner.engine.kv.tiers.tier import Tier
from batchrunner.engine.request import Request
from batchrunner.engine.scheduling.schedule import Schedule
from tests.engine.kv.cached_blocks import kept, node, put, waiting

HOST, DISK = Place.HOST, Place.DISK


def only(*places: Place) -> CheaperOne:
    """Moving is cheaper than computing for these places."""
    seconds = {place: 0.1 if place in places else 2.0 for place in Place}
    return CheaperOne(MeasuredCosts(1, seconds, seconds, tokens_per_second=1.0))


def test_blocks_are_pushed_down_from_place_to_place() -> None:
    foresight = WaitingRequests(1)
    for number, token_id in enumerate((3, 2, 1)):
        foresight.add(waiting(number, token_id))
    host, disk = Tier(HOST, 1, foresight), Tier(DISK, 1, foresight)
    below, schedule = LowerTiers([host, disk], only(HOST, DISK), foresight), Schedule()
    for token_id in (2, 1, 3, 1):
        below.take_down(node(token_id, block=token_id + 10, num_uses=token_id), schedule)
    one, two, three = (node(token_id).key for token_id in (1, 2, 3))
    assert schedule.moves == [
        Move(Place.DEVICE, 12, HOST, 0, two, ROOT_KEY, 2),
        Move(Place.DEVICE, 11, DISK, 0, one, ROOT_KEY, 1),  # needed later than what is in host memory
        Move(HOST, 0, DISK, 0, two, ROOT_KEY, 2),  # before its slot is written
        Move(Place.DEVICE, 13, HOST, 0, three, ROOT_KEY, 3),
    ]
    assert below.find(one) is None, "needed last, and there is no place left"
    assert below.find(two) == (DISK, disk.find(two)) and below.find(three) == (HOST, host.find(three))


def test_a_copy_that_was_left_below_is_not_written_again() -> None:
    below, schedule = LowerTiers([Tier(HOST, 4, Unknown())], only(HOST), Unknown()), Schedule()
    for _ in range(3):
        below.take_down(node(1), schedule)
        assert below.find(node(1).key) is not None
    assert len(schedule.moves) == 1


def test_a_copy_that_was_left_below_is_as_used_as_the_block_that_leaves_again() -> None:
    host, disk = Tier(HOST, 4, Unknown()), Tier(DISK, 4, Unknown())
    below, schedule = LowerTiers([host, disk], only(HOST, DISK), Unknown()), Schedule()
    counts = []
    for num_uses in (1, 8, 5):
        below.take_down(node(1, num_uses=num_uses), schedule)
        counts += [block.num_uses for block in host.blocks()]
    assert counts == [1, 8, 8]
    assert len(disk) == 0


def test_a_change_of_those_who_wait_reaches_every_place() -> None:
    foresight = WaitingRequests(1)
    first, second = waiting(1, 1), waiting(2, 2)
    tiers = [Tier(place, 2, foresight) for place in (HOST, DISK)]
    for item in (first, second, waiting(0, 3)):
        foresight.add(item)
    for tier in tiers:
        put(tier, 1)
        put(tier, 2)
    foresight.remove(first)
    LowerTiers(tiers, only(HOST, DISK), foresight).next_use_changed(node(1).key)
    for tier in tiers:
        leaving = tier.leaving(node(3).key, 1)
        assert leaving is not None and leaving.key == node(1).key


def test_what_nobody_waits_for_is_dropped() -> None:
    foresight = WaitingRequests(1)
    first, second = waiting(1, 1), waiting(2, 2)
    below = LowerTiers([Tier(HOST, 1, foresight), Tier(DISK, 1, foresight)], only(HOST, DISK), foresight)
    schedule = Schedule()
    below.take_down(node(1), schedule)
    assert not schedule.moves
    foresight.add(first)
    below.take_down(node(1), schedule)
    foresight.remove(first)
    foresight.add(second)
    below.take_down(node(2), schedule)
    assert [(move.target, move.key) for move in schedule.moves] == [(HOST, node(1).key), (HOST, node(2).key)]


@pytest.mark.parametrize("places", [(), (HOST,), (DISK,), (HOST, DISK)])
def test_a_block_is_moved_where_that_is_cheaper_than_computing_it(places: tuple[Place, ...]) -> None:
    below = LowerTiers([Tier(place, 1, Unknown()) for place in (HOST, DISK)], only(*places), Unknown())
    schedule = Schedule()
    below.take_down(node(1), schedule)
    assert [move.target for move in schedule.moves] == list(places[:1])
    found = below.find(node(1).key)
    assert (found and found[0]) == (places[0] if places else None)
    below.choice = only()
    assert below.find(node(1).key) is None


chains = st.lists(st.integers(0, 1), min_size=1, max_size=3)


class TiersMachine(RuleBasedStateMachine):
    """Blocks leave the device and come back, and steps fail; places: what lies where when the moves were made."""

    @initialize(
        sizes=st.tuples(st.integers(0, 3), st.integers(0, 4)),
        left=st.lists(st.tuples(chains, st.booleans()), max_size=4),
        places=st.sampled_from([[HOST, DISK], [HOST, DISK], [HOST], [DISK]]),
        has_foresight=st.booleans(),
    )
    def start(
        self, sizes: tuple[int, int], left: list[tuple[list[int], bool]], places: list[Place], has_foresight: bool
    ) -> None:
        self.foresight = WaitingRequests(1) if has_foresight else Unknown()
        blocks = [kept(slot, *chain) for slot, (chain, _) in enumerate(left)]
        self.places: dict[Place, dict[int, bytes]] = {place: {} for place in Place}
        self.places[DISK] = {block.slot: block.key if left[block.slot][1] else b"damaged" for block in blocks}
        host = Tier(HOST, sizes[0], self.foresight)
        disk = Tier(DISK, sizes[1], self.foresight, blocks, lambda slot, key: self.places[DISK][slot] == key)
        self.below = LowerTiers([tier for tier in (host, disk) if tier.num_slots], only(*places), self.foresight)
        self.schedule = Schedule()
        self.waiting: list[Request] = []
        self.numbers = count()

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
                self.below.next_use_changed(key)

    @rule(chain=chains)
    def leaves_the_device(self, chain: list[int]) -> None:
        block = node(*chain, block=next(self.numbers))
        self.places[Place.DEVICE][block.block] = block.key
        self.below.take_down(block, self.schedule)

    @rule(chain=chains)
    def comes_back(self, chain: list[int]) -> None:
        found = self.below.find(node(*chain).key)
        if found is not None:
            place, block = found
            load = Move(place, block.slot, Place.DEVICE, next(self.numbers), node(*chain).key, block.parent_key)
            self.schedule.moves.append(load)

    @rule(num_done=st.one_of(st.none(), st.integers(0, 8)))
    def step_ends(self, num_done: int | None) -> None:
        """num_done: how many moves were made before it failed."""
        for move in self.schedule.moves[:num_done]:
            content = self.places[move.source][move.source_slot]
            assert content == move.key
            self.places[move.target][move.target_slot] = content
        if num_done is not None:
            self.below.undo(self.schedule)
        self.schedule = Schedule()
        for tier in self.below.tiers:
            for block in tier.blocks():
                assert self.places[tier.place][block.slot] == block.key or not block.is_checked

    @invariant()
    def everything_is_accounted_for(self) -> None:
        if hasattr(self, "below"):
            self.below.check_integrity()


TestTiersMachine = TiersMachine.TestCase
TestTiersMachine.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
