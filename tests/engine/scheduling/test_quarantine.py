"""A row that makes the model fail is found; the others are answered as if it had not been there."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchrunner import SamplingParams
from batchrunner.engine.request import Request
from batchrunner.engine.scheduling.quarantine import Quarantine
from batchrunner.engine.scheduling.schedule import Schedule
from tests.engine.fakes import FakeModelRunner, expected_output
from tests.engine.scheduling.schedulers import build, request

POISON = 49  # a token on which the runner below fails


class FailingRunner(FakeModelRunner):
    def run(self, schedule: Schedule) -> list[int]:
        tokens = super().run(schedule)  # the cache is written before the failure, as on a real device
        if any(POISON in item.request.token_ids[item.start : item.end] for item in schedule.scheduled):
            raise RuntimeError("the kernel met a poisoned token")
        return tokens


class BrokenRunner(FakeModelRunner):
    def run(self, schedule: Schedule) -> list[int]:
        raise RuntimeError("the device is gone")


def run(prompts: list[list[int]], runner_type: type[FakeModelRunner], every: int = 1) -> list[Request]:
    num_blocks = 60
    scheduler, _ = build(num_blocks=num_blocks, block_size=4, max_running=6, max_batch_tokens=30, schedule_every=every)
    pool = scheduler.pool
    quarantine, runner = Quarantine(scheduler), runner_type(num_blocks, 4)
    requests = []
    for prompt in prompts:
        requests.append(Request("r", list(prompt), len(prompt), SamplingParams(max_tokens=4, ignore_eos=True)))
        scheduler.add(requests[-1])
    ended: list[Request] = []
    for _ in range(2000):
        if not scheduler.has_unfinished:
            break
        schedule = scheduler.schedule()
        assert schedule.scheduled or every > 1
        try:
            tokens = runner.run(schedule)
        except RuntimeError as error:
            ended += quarantine.failed(schedule, error)
        else:
            ended += scheduler.update(schedule, tokens)
            quarantine.passed(schedule)
        scheduler.check_integrity()
    assert len(ended) == len(requests)
    assert pool.num_free + scheduler.cache.num_evictable == num_blocks
    return requests


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.lists(st.integers(3, 8), min_size=1, max_size=20), min_size=1, max_size=14),
    st.sets(st.integers(0, 13), max_size=3),
    st.sampled_from([1, 2, 5]),
)
def test_only_the_poisoned_rows_fail(prompts: list[list[int]], poisoned: set[int], every: int) -> None:
    prompts = [[*prompt, POISON, 5] if i in poisoned else prompt for i, prompt in enumerate(prompts)]
    if len(prompts) <= len(poisoned & set(range(len(prompts)))) + 1:
        return  # nearly all of them poisoned looks like a broken device
    for item, prompt in zip(run([[3, 4, 5], *prompts, [6, 7]], FailingRunner, every)[1:], prompts, strict=False):
        wanted = expected_output(prompt, 4)
        if POISON in prompt or POISON in wanted[:-1]:
            assert item.error is not None
            assert "poisoned token" in str(item.error)
        else:
            assert item.error is None
            assert item.output_token_ids == wanted


def test_a_broken_device_ends_the_job_with_its_own_error() -> None:
    with pytest.raises(RuntimeError, match="the device is gone"):
        run([[3 + i] * 5 for i in range(20)], BrokenRunner)


def test_who_has_ended_and_waits_to_leave_is_not_run_again_after_a_failed_step() -> None:
    """Every third step is a pass; the last step before one fails while a request that has ended is still there."""
    scheduler, runner = build(schedule_every=3, predictive_release=False)
    short, long = request([3, 4], 1), request([5, 6], 10)
    for item in (short, long):
        scheduler.add(item)
    for _ in range(2):
        schedule = scheduler.schedule()
        assert scheduler.update(schedule, runner.run(schedule)) == []
    scheduler.abandon(scheduler.schedule())
    left: list[Request] = []
    while scheduler.has_unfinished:
        schedule = scheduler.schedule()
        left += scheduler.update(schedule, runner.run(schedule))
    assert left == [short, long]
    assert [item.num_output_tokens for item in left] == [1, 10]
