"""The scheduler, pool and prefix cache together, case by case."""

from typing import Any

import pytest

from batchrunner.errors import RowError
from tests.engine.fakes import expected_output
from tests.engine.scheduling.schedulers import build, request, run_all, step


def test_requests_join_and_leave_between_steps() -> None:
    scheduler, runner = build(max_running=2, prefix_caching=False)
    short, long, late = request([3, 4], 2), request([5, 6], 6), request([7, 8], 2)
    for item in (short, long, late):
        scheduler.add(item)
    assert [item.request for item in step(scheduler, runner).scheduled] == [short, long]
    assert [item.request for item in step(scheduler, runner).scheduled] == [short, long]
    assert [item.request for item in step(scheduler, runner).scheduled] == [long, late]


def test_static_batching_waits_for_the_longest_member() -> None:
    scheduler, runner = build(max_running=2, batching="static", prefix_caching=False)
    short, long, late = request([3, 4], 2), request([5, 6], 6), request([7, 8], 2)
    for item in (short, long, late):
        scheduler.add(item)
    members = [[item.request for item in step(scheduler, runner).scheduled] for _ in range(7)]
    assert members == [[short, long], [short, long], [long], [long], [long], [long], [late]]


def test_a_static_batch_fills_over_several_steps_when_prompts_are_long() -> None:
    scheduler, runner = build(max_running=3, max_batch_tokens=8, batching="static", prefix_caching=False)
    requests = [request([3 + i] * 8, 9) for i in range(4)]
    for item in requests:
        scheduler.add(item)
    for _ in range(4):
        step(scheduler, runner)
    assert scheduler.running == requests[:3]


def test_ten_requests_of_two_lengths_take_the_steps_of_the_longest() -> None:
    """MISSION's example: eight of 100 tokens end after 100 steps, two of 1,000 after 1,000."""
    scheduler, _ = build(num_blocks=2000, max_running=10, prefix_caching=False)
    requests = [request([3 + i], 100 if i < 8 else 1000) for i in range(10)]
    for item in requests:
        scheduler.add(item)
    ends: dict[int, int] = {}
    number = 0
    while scheduler.has_unfinished:
        number += 1
        schedule = scheduler.schedule()
        for item in scheduler.update(schedule, [3] * len(schedule.sampling_requests)):
            ends[requests.index(item)] = number
    assert ends == {i: 100 if i < 8 else 1000 for i in range(10)}


def test_siblings_share_a_prefix_inside_one_step() -> None:
    scheduler, runner = build(block_size=4, max_batch_tokens=200)
    stem = list(range(3, 19))  # four blocks
    requests = [request([*stem, 20 + i, 30], 1) for i in range(5)]
    for item in requests:
        scheduler.add(item)
    schedule = step(scheduler, runner)
    assert [item.num_new_tokens for item in schedule.scheduled] == [18, 2, 2, 2, 2]
    assert [item.num_cached_tokens for item in requests] == [0, 16, 16, 16, 16]


def test_siblings_follow_a_long_prefix_chunk_by_chunk_without_computing_it_twice() -> None:
    scheduler, runner = build(num_blocks=200, block_size=4, max_batch_tokens=10)
    stem = [3 + i % 40 for i in range(80)]
    run_all(scheduler, runner, [request([*stem, 43 + i], 1) for i in range(4)])
    assert scheduler.counters.num_computed_tokens == 80 + 4


def test_a_partial_block_is_copied_before_it_is_written() -> None:
    scheduler, runner = build(block_size=8)
    first = request([3, 4, 5, 6, 7, 8, 9, 10], 4)
    run_all(scheduler, runner, [first])
    second = request([3, 4, 5, 6, 7, 11, 12], 4)
    scheduler.add(second)
    schedule = step(scheduler, runner)
    assert len(schedule.moves) == 1
    assert (schedule.scheduled[0].start, second.num_cached_tokens) == (5, 5)
    assert schedule.moves[0].target_slot == second.block_table[0] != schedule.moves[0].source_slot
    run_all(scheduler, runner, [])
    assert second.output_token_ids == expected_output([3, 4, 5, 6, 7, 11, 12], 4)


def test_a_prompt_known_whole_computes_its_last_token_only() -> None:
    scheduler, runner = build(block_size=4)
    prompt = [3, 4, 5, 6, 7, 8, 9, 10]
    run_all(scheduler, runner, [request(prompt, 1)])
    scheduler.add(request(prompt, 1))
    assert step(scheduler, runner).num_tokens == 1


def test_generated_tokens_are_found_by_the_next_turn() -> None:
    scheduler, runner = build(block_size=4)
    turn = request([3, 4, 5], 10)
    run_all(scheduler, runner, [turn])
    following = request([*turn.token_ids, 7, 8], 3)
    run_all(scheduler, runner, [following])
    assert following.num_cached_tokens == 12  # of 13 tokens of the first turn, 12 were computed: three blocks


def test_preemption_takes_the_youngest_and_gives_the_same_answers() -> None:
    scheduler, runner = build(num_blocks=8, block_size=4, max_running=3, prefix_caching=False)
    requests = [request([3 + i] * 6, 14) for i in range(3)]
    run_all(scheduler, runner, requests)
    assert requests[0].num_preemptions == 0
    assert scheduler.counters.num_preemptions > 0
    assert scheduler.counters.num_recomputed_tokens > 0
    assert scheduler.counters.num_cached_tokens == 0


def test_what_a_preempted_request_finds_again_is_no_cache_hit() -> None:
    scheduler, runner = build(num_blocks=9, block_size=4, max_running=3)
    requests = [request([3 + i] * 6, 14) for i in range(3)]
    run_all(scheduler, runner, requests)
    assert scheduler.counters.num_preemptions > 0
    assert scheduler.counters.num_cached_tokens == 0
    assert [item.num_cached_tokens for item in requests] == [0, 0, 0]


def test_nobody_enters_in_a_step_that_preempted() -> None:
    scheduler, runner = build(num_blocks=6, block_size=4, max_running=4, prefix_caching=False)
    for item in [request([3 + i] * 7, 12) for i in range(2)] + [request([20], 2)]:
        scheduler.add(item)
    while scheduler.has_unfinished:
        running = list(scheduler.running)
        schedule = step(scheduler, runner)
        if schedule.preempted:
            assert all(item.request in running for item in schedule.scheduled)


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "options", "error_type"),
    [
        ([], 5, {}, "empty_prompt"),
        ([3] * 20, 5, {"max_total_tokens": 20}, "prompt_too_long"),
        ([3] * 200, 100, {}, "exceeds_kv_memory"),
    ],
)
def test_a_request_that_can_never_run_is_refused(
    prompt: list[int], max_tokens: int, options: dict[str, Any], error_type: str
) -> None:
    scheduler, runner = build(num_blocks=64, block_size=4)
    with pytest.raises(RowError) as caught:
        scheduler.add(request(prompt, max_tokens, **options))
    assert caught.value.error_type == error_type
    run_all(scheduler, runner, [request([3, 4], 3)])


def test_a_request_that_fits_exactly_runs() -> None:
    scheduler, runner = build(num_blocks=4, block_size=4)
    run_all(scheduler, runner, [request([3] * 10, 7)])  # 16 tokens of KV: the 17th is never read


def test_the_answer_ends_at_the_end_of_the_context() -> None:
    scheduler, runner = build()
    item = request([3, 4, 5], 100, max_total_tokens=10)
    scheduler.add(item)
    while scheduler.has_unfinished:
        step(scheduler, runner)
    assert (item.num_tokens, item.finish_reason) == (10, "length")


def test_a_request_with_saved_tokens_goes_on_after_them() -> None:
    scheduler, runner = build()
    prompt = [3, 4, 5]
    item = request(prompt, 9)
    item.token_ids += expected_output(prompt, 4)
    run_all(scheduler, runner, [item])
    assert scheduler.counters.num_computed_tokens == 7 + 4
