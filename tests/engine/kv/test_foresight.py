"""What is known of the blocks that will be needed again."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from batchrunner.engine.kv.chain import block_keys
from batchrunner.engine.kv.foresight import LATER, MIN_CLEARED, NEVER, Unknown, WaitingRequests
from batchrunner.engine.request import Request
from tests.engine.scheduling.schedulers import request

BLOCK_SIZE = 2


def waiting(number: int, token_ids: list[int]) -> Request:
    item = request(token_ids)
    item.number = number
    return item


def key(*token_ids: int) -> bytes:
    return block_keys(request(list(token_ids)), BLOCK_SIZE)[-1]


def test_the_first_who_waits_for_a_block_is_its_next_user() -> None:
    foresight = WaitingRequests(BLOCK_SIZE)
    foresight.add(waiting(7, [1, 2, 3, 4]))
    foresight.add(waiting(3, [1, 2, 5, 6]))
    foresight.add(waiting(5, [1, 2]))
    asked = [key(1, 2), key(1, 2, 3, 4), key(1, 2, 5, 6), key(3, 4)]
    assert [foresight.next_use(block) for block in asked] == [3, 7, 3, NEVER]
    assert [foresight.is_wanted(block) for block in asked] == [True, True, True, False]


def test_a_block_that_is_not_full_is_not_asked_for() -> None:
    foresight = WaitingRequests(BLOCK_SIZE)
    foresight.add(waiting(1, [1, 2, 3]))
    assert len(foresight._users) == 1
    assert foresight.next_use(key(1, 2)) == 1


def test_the_next_one_follows_who_waits_no_more() -> None:
    foresight = WaitingRequests(BLOCK_SIZE)
    first, second, third = (waiting(number, [1, 2]) for number in (1, 2, 3))
    for item in (third, first, second):
        foresight.add(item)
    foresight.remove(second)
    assert foresight.next_use(key(1, 2)) == 1
    foresight.remove(first)
    assert foresight.next_use(key(1, 2)) == 3
    foresight.remove(third)
    assert foresight.next_use(key(1, 2)) == NEVER
    assert not foresight.is_wanted(key(1, 2))


def test_who_was_preempted_waits_for_what_it_has_generated_too() -> None:
    foresight = WaitingRequests(BLOCK_SIZE)
    item = waiting(4, [1, 2, 3])
    foresight.add(item)
    foresight.remove(item)
    item.token_ids += [4, 5]
    foresight.add(item)
    assert foresight.next_use(key(1, 2, 3, 4)) == 4
    foresight.remove(item)
    assert not foresight._users


def test_memory_follows_those_who_wait_for_a_block_not_those_who_did() -> None:
    foresight = WaitingRequests(BLOCK_SIZE)
    foresight.add(waiting(1, [1, 2]))  # waits all the time, and stands before all others
    for number in range(2, 10_000):
        item = waiting(number, [1, 2])
        foresight.add(item)
        foresight.remove(item)
    assert sum(map(len, foresight._users.values())) <= MIN_CLEARED
    assert foresight.next_use(key(1, 2)) == 1


def test_a_list_that_was_cleared_still_says_who_is_first() -> None:
    foresight, rng = WaitingRequests(BLOCK_SIZE), random.Random(0)
    who_wait: list[Request] = []
    for number in range(20 * MIN_CLEARED):
        who_wait.append(waiting(rng.choice([number, -number]), [1, 2]))
        foresight.add(who_wait[-1])
        while len(who_wait) > rng.randint(1, 4 * MIN_CLEARED):
            foresight.remove(who_wait.pop(rng.randrange(len(who_wait))))
        assert foresight.next_use(key(1, 2)) == min(item.number for item in who_wait)


@settings(max_examples=300, deadline=None)
@given(
    prompts=st.lists(st.lists(st.integers(1, 2), max_size=7), min_size=1, max_size=8),
    picks=st.lists(st.integers(0, 7), max_size=30),
)
def test_it_is_what_a_scan_of_those_who_wait_would_find(prompts: list[list[int]], picks: list[int]) -> None:
    """Each pick begins to wait, or waits no more. Memory follows those who wait."""
    foresight = WaitingRequests(BLOCK_SIZE)
    requests = [waiting(number, prompt) for number, prompt in enumerate(prompts)]
    who_wait: set[Request] = set()
    for pick in picks:
        item = requests[pick % len(requests)]
        (foresight.remove if item in who_wait else foresight.add)(item)
        who_wait ^= {item}
        wanted = {block for item in who_wait for block in block_keys(item, BLOCK_SIZE)}
        assert set(foresight._users) == wanted
        for block in (block for item in requests for block in block_keys(item, BLOCK_SIZE)):
            users = [item.number for item in who_wait if block in item.block_keys]
            assert foresight.next_use(block) == min(users, default=NEVER)
            assert foresight.is_wanted(block) == bool(users)


def test_without_foresight_any_block_may_be_asked_for() -> None:
    foresight = Unknown()
    item = waiting(1, [1, 2])
    foresight.add(item)
    assert (foresight.next_use(key(1, 2)), foresight.next_use(key(8, 9))) == (NEVER, NEVER)
    foresight.remove(item)
    assert foresight.is_wanted(key(1, 2)) and foresight.is_wanted(key(8, 9))


def test_a_block_that_later_requests_will_ask_for_leaves_after_those_that_nobody_will() -> None:
    foresight = WaitingRequests(BLOCK_SIZE)
    first, last = waiting(1, [1, 2, 3, 4, 5, 6]), waiting(2, [1, 2, 3, 4, 7, 8])
    first.num_shared_later = 5
    for item in (first, last):
        foresight.arrived(item)
        foresight.add(item)
        if item is first:
            foresight.remove(first)
            assert [foresight.next_use(key(*range(1, end))) for end in (3, 5, 7)] == [LATER, LATER, NEVER]
    assert foresight.next_use(key(1, 2)) == 2
    foresight.remove(last)
    assert foresight.next_use(key(1, 2)) == NEVER
    assert not foresight._later and not foresight._users


def test_what_comes_later_is_not_taken_back_by_a_request_that_waits_again() -> None:
    foresight = WaitingRequests(BLOCK_SIZE)
    item = waiting(1, [1, 2, 3, 4])
    item.num_shared_later = 2
    foresight.arrived(item)
    foresight.arrived(waiting(2, [1, 2]))
    foresight.add(item)
    foresight.remove(item)
    assert foresight.next_use(key(1, 2)) == NEVER
