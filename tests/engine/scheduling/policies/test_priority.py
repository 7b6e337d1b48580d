"""What the policy priority promises, on the real scheduler; time is counted in steps."""

import pytest

from batchrunner.engine.request import Request
from batchrunner.engine.scheduling.queues import MAX_PREEMPTIONS
from tests.engine.scheduling.policies.policy_runs import SEATS, ends_under_a_stream, run, scheduler_for, short, step
from tests.engine.scheduling.schedulers import request


def test_the_more_urgent_request_takes_the_place_of_a_less_urgent_one() -> None:
    scheduler = scheduler_for("priority")
    low, middle, high = (request([3, i], 20, priority=i) for i in range(3))
    for item in (low, middle):
        scheduler.add(item)
    step(scheduler)
    scheduler.add(high)
    step(scheduler)
    assert scheduler.running == [high, middle]
    assert low in scheduler.waiting
    assert (scheduler.counters.num_displacements, scheduler.counters.num_preemptions) == (1, 0)
    ends = run(scheduler, [])
    assert ends[middle] < ends[low]


def test_who_was_preempted_too_often_is_not_displaced_either() -> None:
    scheduler = scheduler_for("priority")
    low, other = request([3], 20), request([4], 20, priority=1)
    for item in (low, other):
        scheduler.add(item)
    step(scheduler)
    low.num_preemptions = MAX_PREEMPTIONS
    scheduler.add(request([5], 5, priority=2))
    step(scheduler)
    assert scheduler.running == [other, low]


def test_equals_do_not_displace_each_other() -> None:
    scheduler = scheduler_for("priority")
    run(scheduler, [request([3, i], 5, priority=1) for i in range(20)])
    assert scheduler.counters.num_displacements == 0


def test_many_urgent_requests_enter_in_one_step() -> None:
    scheduler = scheduler_for("priority", max_running=6)
    for i in range(6):
        scheduler.add(request([3, i], 20))
    step(scheduler)
    urgent = [request([4, i], 5, priority=1) for i in range(4)]
    for item in urgent:
        scheduler.add(item)
    step(scheduler)
    assert scheduler.running[:4] == urgent
    assert scheduler.counters.num_displacements == 4


def test_a_static_batch_is_not_broken_up() -> None:
    scheduler = scheduler_for("priority", batching="static")
    members = [request([3, i], 10) for i in range(SEATS)]
    for item in members:
        scheduler.add(item)
    step(scheduler)
    scheduler.add(request([4], 2, priority=5))
    step(scheduler)
    assert scheduler.running == members
    assert scheduler.counters.num_displacements == 0


def test_without_ageing_a_low_priority_starves_and_with_it_it_does_not() -> None:
    def urgent(number: int) -> Request:
        return short(number, priority=3)

    low = request([3], 20)
    assert ends_under_a_stream(scheduler_for("priority"), low, urgent, 400) is None
    low = request([3], 20)
    assert ends_under_a_stream(scheduler_for("priority", ageing=0.1), low, urgent, 400) is not None


@pytest.mark.parametrize("lends", [True, False])
def test_who_computes_a_prefix_is_lent_the_priority_of_those_who_wait_for_it(
    lends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two seats. The urgent request needs the prefix that low computes: without a loan middle, more urgent than low,
    would take low's place."""
    scheduler = scheduler_for("priority", prefix_caching=True, max_batch_tokens=32)
    if not lends:
        monkeypatch.setattr(scheduler.policy, "lend", lambda lender, running: False)
    prefix = list(range(3, 163))
    low, middle = request(prefix, 5), request(list(range(200, 360)), 5, priority=1)
    high = request([*prefix, 7], 5, priority=2)
    for item in (low, middle, high):
        scheduler.add(item)
        step(scheduler)
    assert (low in scheduler.running) == lends
    run(scheduler, [])
    assert scheduler.counters.num_computed_tokens < 2 * 160 + 20, "the prefix was computed once"


def test_a_loan_ends_when_the_prefix_is_computed() -> None:
    scheduler = scheduler_for("priority", prefix_caching=True, max_batch_tokens=33, max_running=1)
    prefix = list(range(3, 163))
    low, high = request(prefix, 30), request([*prefix, 7], 5, priority=2)
    scheduler.add(low)
    step(scheduler)
    scheduler.add(high)
    while low.num_output_tokens == 0:
        step(scheduler)
        assert scheduler.running == [low], "it is as urgent as the one that waits for it"
    step(scheduler)
    assert scheduler.running == [high]
