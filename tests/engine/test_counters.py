"""What the engine has done, in numbers that add up."""

import pytest

from batchrunner.engine.counters import Counters
from batchrunner.engine.kv.chain import ROOT_KEY
from batchrunner.engine.kv.places import Move, Place
from batchrunner.engine.scheduling.schedule import Schedule
from batchrunner.engine.scheduling.scheduler import SAMPLE_EVERY
from tests.engine.scheduling.schedulers import build, request, run_all

DEVICE, HOST, DISK = Place


def moved(*places: tuple[Place, Place]) -> Schedule:
    schedule = Schedule()
    schedule.moves = [Move(source, 0, target, 1, ROOT_KEY, ROOT_KEY) for source, target in places]
    return schedule


def blocks(counters: Counters) -> dict[str, int]:
    return {
        "to_host": counters.num_blocks_to_host,
        "from_host": counters.num_blocks_from_host,
        "to_disk": counters.num_blocks_to_disk,
        "from_disk": counters.num_blocks_from_disk,
    }


@pytest.mark.parametrize(
    ("source", "target", "counted"),
    [
        (DEVICE, DEVICE, None),
        (DEVICE, HOST, "to_host"),
        (DEVICE, DISK, "to_disk"),
        (HOST, DISK, "to_disk"),  # pushed down: it does not come back with that
        (HOST, DEVICE, "from_host"),
        (DISK, DEVICE, "from_disk"),
    ],
)
def test_moves_are_counted_by_where_they_go(source: Place, target: Place, counted: str | None) -> None:
    counters = Counters()
    counters.count_step(0, moved((source, target), (source, target)).moves)
    assert blocks(counters) == {**blocks(Counters()), **({counted: 2} if counted else {})}


def test_steps_add_up() -> None:
    counters = Counters()
    schedule = moved((DEVICE, HOST), (HOST, DEVICE))
    schedule.add(request([3] * 4), 4)
    counters.count_step(schedule.num_tokens, schedule.moves)
    schedule = moved((DEVICE, HOST))
    schedule.add(request([3] * 7), 7)
    schedule.add(request([3] * 7), 2)
    counters.count_step(schedule.num_tokens, schedule.moves)
    assert blocks(counters) == {"to_host": 2, "from_host": 1, "to_disk": 0, "from_disk": 0}
    assert (counters.num_steps, counters.num_computed_tokens) == (2, 13)


def test_the_utilisation_of_blocks_is_that_of_all_samples() -> None:
    counters = Counters()
    assert counters.block_utilisation == 1.0, "nothing is held, nothing is wasted"
    first, second = request([3] * 9), request([3] * 20)
    first.block_table, first.num_computed_tokens = [0, 1, 2], 9
    second.block_table, second.num_computed_tokens = [0, 3], 8
    counters.count_slots([first, second], block_size=4)
    assert (counters.num_held_slots, counters.num_used_slots) == (20, 17)
    counters.count_slots([first], block_size=4)
    assert counters.block_utilisation == 26 / 32
    counters.count_slots([], block_size=4)
    assert counters.block_utilisation == 26 / 32


def test_the_hit_rate_is_of_prompt_tokens() -> None:
    assert Counters().hit_rate == 0.0
    assert Counters(num_prompt_tokens=80, num_cached_tokens=20, num_output_tokens=100).hit_rate == 0.25


def test_only_the_last_block_of_a_request_has_unused_slots() -> None:
    scheduler, runner = build(num_blocks=200, block_size=4, prefix_caching=False)
    run_all(scheduler, runner, [request([3 + i] * (5 + i), 60) for i in range(8)])
    counters = scheduler.counters
    assert counters.num_steps // SAMPLE_EVERY == 3
    assert counters.num_held_slots - 8 * 3 * 4 <= counters.num_used_slots < counters.num_held_slots
    assert counters.block_utilisation > 0.9
