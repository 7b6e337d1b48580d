"""Every prefix is computed once, to the token, wherever a block ends: also by requests that enter in one step."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchrunner.engine.kv.places import InnerCopy
from tests.engine.fakes import expected_output
from tests.engine.scheduling.schedulers import build, request, run_all, step

# No answer of the fake model has these tokens.
prompts = st.lists(st.lists(st.integers(60, 62), min_size=1, max_size=14).map(tuple), min_size=1, max_size=24)


def num_least(prompts: list[tuple[int, ...]]) -> int:
    """Nodes of the prompts' trie, and the last token once more of each prompt that is known whole."""
    num_known = sum(before == prompt for before, prompt in pairwise(sorted(prompts)))
    return len({prompt[:end] for prompt in prompts for end in range(1, len(prompt) + 1)}) + num_known


@settings(max_examples=150, deadline=None)
@given(
    prompts=prompts,
    lengths=st.lists(st.integers(1, 9), min_size=24, max_size=24),
    block_size=st.sampled_from([1, 3, 4, 16]),
    max_running=st.sampled_from([1, 3, 64]),
    max_batch_tokens=st.sampled_from([16, 30, 1000]),
    schedule_every=st.sampled_from([1, 1, 3]),
)
def test_rows_in_the_order_of_their_prefixes_compute_each_token_of_the_tree_once(
    prompts: list[tuple[int, ...]],
    lengths: list[int],
    block_size: int,
    max_running: int,
    max_batch_tokens: int,
    schedule_every: int,
) -> None:
    scheduler, runner = build(
        num_blocks=2000,
        block_size=block_size,
        max_running=max_running,
        max_batch_tokens=max_batch_tokens,
        schedule_every=schedule_every,
    )
    requests = [request(list(prompt), length) for prompt, length in zip(sorted(prompts), lengths, strict=False)]
    run_all(scheduler, runner, requests)
    counters = scheduler.counters
    assert counters.num_prompt_tokens - counters.num_cached_tokens == num_least(prompts)


def test_siblings_of_one_step_share_the_part_of_a_block_that_they_have_in_common() -> None:
    scheduler, runner = build(block_size=8)
    first, second = request([3, 4, 5, 6, 7], 2), request([3, 4, 5, 9], 2)
    for item in (first, second):
        scheduler.add(item)
    schedule = step(scheduler, runner)
    assert [item.num_new_tokens for item in schedule.scheduled] == [5, 1]
    assert schedule.copies == [InnerCopy(first.block_table[0], second.block_table[0], 3)]
    run_all(scheduler, runner, [])
    assert second.output_token_ids == expected_output([3, 4, 5, 9], 2)


def test_the_end_of_a_prompt_is_shared_after_its_request_has_left() -> None:
    scheduler, runner = build(block_size=8)
    run_all(scheduler, runner, [request([3, 4, 5], 2)])
    longer = request([3, 4, 5, 6, 7], 2)
    run_all(scheduler, runner, [longer])
    assert longer.num_cached_tokens == 3


def test_who_shares_with_a_prompt_that_is_cut_waits_for_its_rest() -> None:
    scheduler, runner = build(block_size=4, max_batch_tokens=10)
    stem = [3, 4, 5, 6, 7, 8, 9, 10, 11]
    for item in (long := request([*stem, 12, 13], 2), short := request(stem, 2)):
        scheduler.add(item)
    assert [item.request for item in step(scheduler, runner).scheduled] == [long]
    step(scheduler, runner)
    assert short.num_cached_tokens == 8


@pytest.mark.parametrize("num_own", [1, 5])
def test_a_broken_step_leaves_nothing_of_what_it_entered(num_own: int) -> None:
    scheduler, runner = build(block_size=8)
    requests = [request([3, 4, 5, *[9 + i] * num_own], 3) for i in range(4)]
    for item in requests:
        scheduler.add(item)
    scheduler.abandon(scheduler.schedule())
    scheduler.check_integrity()
    assert not scheduler.cache.cached_blocks
    run_all(scheduler, runner, [])
    assert all(item.output_token_ids == expected_output(item.token_ids[: 3 + num_own], 3) for item in requests)
