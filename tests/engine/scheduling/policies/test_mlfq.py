"""What the policy mlfq promises, on the real scheduler; time is counted in steps."""

from typing import Any

from batchrunner.engine.scheduling.policies.mlfq import FeedbackQueue
from batchrunner.engine.scheduling.scheduler import Scheduler
from tests.engine.scheduling.policies.policy_runs import ends_under_a_stream, lengths, run, scheduler_for, short, step
from tests.engine.scheduling.schedulers import request


def feedback_queue(scheduler: Scheduler) -> FeedbackQueue:
    assert isinstance(scheduler.policy, FeedbackQueue)
    return scheduler.policy


def test_who_uses_up_its_slice_goes_down_level_by_level() -> None:
    scheduler = scheduler_for("mlfq", mlfq={"slice": 4, "levels": 3, "boost_every": 10_000})
    item = request([3], 100)
    scheduler.add(item)
    levels = []
    while scheduler.has_unfinished:
        levels.append(feedback_queue(scheduler).level(item))
        step(scheduler)
    assert levels == [0] * 4 + [1] * 8 + [2] * 88  # slices of 4 and 8 tokens; the lowest level has no end


def test_short_requests_overtake_long_ones_that_came_before() -> None:
    scheduler = scheduler_for("mlfq", mlfq={"slice": 4, "boost_every": 10_000}, max_running=1)
    long, late = request([3], 100), request([4], 4)
    scheduler.add(long)
    for _ in range(5):
        step(scheduler)
    scheduler.add(late)
    ends = run(scheduler, [])
    assert ends[late] == 4
    assert ends[long] > 90


def test_mlfq_needs_no_lengths_to_end_short_requests_early() -> None:
    def mean_end(policy: str, **options: Any) -> float:
        requests = [request([3, i], length) for i, length in enumerate(lengths(2, 60))]
        ends = run(scheduler_for(policy, **options), requests)
        return sum(ends.values()) / len(ends)

    assert mean_end("mlfq", mlfq={"slice": 4, "boost_every": 10_000}) < 0.8 * mean_end("fcfs")


def test_without_a_boost_a_long_request_starves_and_with_it_it_does_not() -> None:
    for boost_every, starves in ((100_000, True), (64, False)):
        scheduler = scheduler_for("mlfq", mlfq={"slice": 4, "boost_every": boost_every})
        end = ends_under_a_stream(scheduler, request([3], 30), short, 1500)
        assert (end is None) == starves
