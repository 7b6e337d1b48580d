"""The requests that wait."""

from hypothesis import given, settings
from hypothesis import strategies as st

from batchrunner.engine.request import Request
from batchrunner.engine.scheduling.policies.policy import Rank, Unchanging
from batchrunner.engine.scheduling.waiting import WaitingQueue
from tests.engine.scheduling.schedulers import request


class Told(Unchanging):
    """Ranks are the priorities; the queue is told of every change."""

    def rank(self, request: Request) -> Rank:
        return (request.priority,)


def waiting(number: int, rank: int = 0) -> Request:
    item = request([3], priority=rank)
    item.number = number
    return item


def drain(queue: WaitingQueue) -> list[int]:
    """The numbers in the order in which they are admitted."""
    numbers = []
    while (item := queue.first()) is not None:
        numbers.append(item.number)
        queue.remove(item)
    return numbers


def test_the_smallest_rank_comes_first_and_of_equals_the_first_to_arrive() -> None:
    queue = WaitingQueue(Told())
    for number, rank in ((4, 1), (1, 2), (3, 0), (2, 1), (5, 0)):
        queue.push(waiting(number, rank))
    assert drain(queue) == [3, 5, 2, 4, 1]
    assert queue.first() is None


def test_the_first_stays_until_it_is_removed() -> None:
    queue = WaitingQueue(Told())
    first, second = waiting(1), waiting(2)
    queue.push(second)
    queue.push(first)
    assert [queue.first(), queue.first()] == [first, first]
    assert (len(queue), first in queue, second in queue) == (2, True, True)
    assert set(queue) == {first, second}
    queue.remove(first)
    assert (len(queue), first in queue, second in queue) == (1, False, True)
    assert list(queue) == [second]
    assert queue.first() is second


def test_who_leaves_from_the_middle_is_not_admitted_and_may_come_back() -> None:
    queue = WaitingQueue(Told())
    items = [waiting(number) for number in range(4)]
    for item in items:
        queue.push(item)
    queue.remove(items[1])
    queue.remove(items[2])
    queue.push(items[2])
    assert drain(queue) == [0, 2, 3]


def test_a_changed_rank_counts_once_the_queue_is_told() -> None:
    queue = WaitingQueue(Told())
    items = [waiting(number, number) for number in range(3)]
    for item in items:
        queue.push(item)
    items[2].priority = -1
    assert queue.first() is items[0]
    queue.rank_again(items[2])
    assert queue.first() is items[2]
    items[2].priority = 9
    queue.rank_again(items[2])
    assert len(queue) == 3
    assert drain(queue) == [0, 1, 2]


@settings(max_examples=200, deadline=None)
@given(
    operations=st.lists(st.tuples(st.sampled_from(["push", "remove", "rank", "first"]), st.integers(0, 9))),
    num_others=st.sampled_from([0, 3, 200]),
)
def test_it_is_a_sorted_list(operations: list[tuple[str, int]], num_others: int) -> None:
    """The others are pushed and removed before: their entries are still in the heap, or it was cleared of them."""
    queue = WaitingQueue(Told())
    others = [waiting(-1 - number) for number in range(num_others)]
    for item in others:
        queue.push(item)
    for item in others:
        queue.remove(item)
    who_wait: list[Request] = []
    for number, (operation, pick) in enumerate(operations):
        if operation == "push":
            who_wait.append(waiting(number, pick))
            queue.push(who_wait[-1])
        elif who_wait and operation == "remove":
            queue.remove(who_wait.pop(pick % len(who_wait)))
        elif who_wait and operation == "rank":
            who_wait[pick % len(who_wait)].priority = pick
            queue.rank_again(who_wait[pick % len(who_wait)])
        who_wait.sort(key=lambda item: (item.priority, item.number))
        assert len(queue) == len(who_wait)
        assert queue.first() is (who_wait[0] if who_wait else None)
    assert drain(queue) == [item.number for item in who_wait]


def test_whoever_leaves_the_heap_stays_small() -> None:
    queue = WaitingQueue(Told())
    for number in range(10):
        queue.push(waiting(number, 9 - number))
    others = [waiting(10 + number, 99) for number in range(1000)]
    for item in others:
        queue.push(item)
    for item in others:
        queue.remove(item)
        queue.push(item)
        queue.rank_again(item)
        queue.remove(item)
    assert len(queue._entries) < 100
    assert drain(queue) == list(range(9, -1, -1))
