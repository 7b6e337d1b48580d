"""How often a block was used, and who is told that a request waits no more."""

from typing import Any

import pytest

from batchrunner.engine.kv.places import Place
from batchrunner.engine.kv.prefix_cache import Node
from batchrunner.engine.kv.swap_choice import MeasuredCosts
from batchrunner.engine.kv.tiers.tier import StoredBlock
from batchrunner.engine.scheduling.scheduler import Scheduler
from tests.engine.kv.cached_blocks import key, put
from tests.engine.scheduling.schedulers import build, request, run_all, step

HOST = Place.HOST
SWAP_IS_CHEAP = dict.fromkeys(Place, 0.001)


def costs(block_size: int) -> MeasuredCosts:
    return MeasuredCosts(block_size, SWAP_IS_CHEAP, SWAP_IS_CHEAP, tokens_per_second=10.0 * block_size)


def all_blocks(scheduler: Scheduler) -> list[Node | StoredBlock]:
    below = [block for tier in scheduler.tables.below.tiers for block in tier.blocks()]
    return [*scheduler.cache.nodes(), *below]


def test_each_request_that_has_a_block_is_one_use_of_it() -> None:
    scheduler, runner = build(block_size=1)
    run_all(scheduler, runner, [request([3, 4, 5, *own], 1) for own in ([6, 7], [6, 8], [9, 9])])
    run_all(scheduler, runner, [request([3, 4, 5, 6, 9], 1)])
    chains = ((3,), (3, 4), (3, 4, 5), (3, 4, 5, 6), (3, 4, 5, 6, 7), (3, 4, 5, 9))
    nodes = [scheduler.cache.find(key(*chain)) for chain in chains]
    assert [node and node.num_uses for node in nodes] == [4, 4, 4, 3, 1, 1]


@pytest.mark.parametrize("options", [{"preemption": "recompute"}, {}, {"host_blocks": 2}, {"host_blocks": 40}])
def test_a_request_that_comes_back_uses_its_blocks_no_second_time(options: dict[str, Any]) -> None:
    """Nobody shares anything here, so that there is nothing to keep for the next run."""
    scheduler, runner = build(num_blocks=9, block_size=4, max_running=3, costs=costs(4), eviction="lru", **options)
    run_all(scheduler, runner, [request([3 + i] * 6, 14) for i in range(3)])
    assert scheduler.counters.num_preemptions > 0
    assert max(block.num_uses for block in all_blocks(scheduler)) == 1


def test_what_a_request_that_comes_back_shares_with_others_is_used_by_each_of_them_once() -> None:
    scheduler, runner = build(num_blocks=10, block_size=4, max_running=3)
    stem = list(range(3, 11))
    requests = [request([*stem, 20 + i], 16) for i in range(3)]
    run_all(scheduler, runner, requests)
    assert scheduler.counters.num_preemptions > 0
    nodes = [node for node in scheduler.cache.nodes() if node.depth <= 2]
    assert [node.num_uses for node in nodes] == [3, 3]


def test_uses_go_down_and_come_back_with_the_block() -> None:
    scheduler, runner = build(num_blocks=4, block_size=4, host_blocks=40, costs=costs(4), eviction="lru")
    stem, other = list(range(3, 12)), [20 + i for i in range(13)]
    for _ in range(3):
        item = request(stem, 1)
        run_all(scheduler, runner, [item])
        run_all(scheduler, runner, [request(other, 1)])  # takes all blocks of the device
    assert scheduler.counters.num_blocks_from_host > 0
    (host,) = scheduler.tables.below.tiers
    copies = [host.peek(key) for key in item.block_keys]
    assert [copy and copy.num_uses for copy in copies] == [3, 3]


def test_a_block_that_a_cancelled_request_waited_for_leaves_first() -> None:
    scheduler, runner = build(block_size=4, max_running=2)
    stems = [[3 + i] * 8 for i in range(2)]
    for stem in stems:
        scheduler.add(request(stem, 1))
    first, second = (request([*stem, 30], 1) for stem in stems)
    scheduler.add(first)
    scheduler.add(second)
    step(scheduler, runner)
    assert not scheduler.running and len(scheduler.waiting) == 2
    scheduler.cancel(first)
    assert scheduler.cache.evict().key == first.block_keys[1]
    scheduler.cache.check_integrity()


def test_a_copy_below_of_what_a_request_found_on_the_device_leaves_first() -> None:
    scheduler, runner = build(block_size=1, max_running=2, host_blocks=2)
    run_all(scheduler, runner, [request([3, 9], 1), request([4, 9], 1)])
    (host,) = scheduler.tables.below.tiers
    running = [request([5], 9), request([6], 1)]
    for item in (*running, request([3, 7], 1), request([4, 7], 1)):
        scheduler.add(item)
    step(scheduler, runner)
    copy, wanted = put(host, 3), put(host, 4)
    assert host.is_full and len(scheduler.waiting) == 2
    step(scheduler, runner)  # the first who waited enters, and finds its block on the device
    assert len(scheduler.waiting) == 1 and scheduler.counters.num_blocks_from_host == 0
    urgent = request([8], 1)
    urgent.number = -1
    scheduler.foresight.add(urgent)
    assert host.leaving(key(8), 1) is copy
    assert host.peek(key(4)) is wanted
