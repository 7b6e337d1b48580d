"""What each policy promises, on the real scheduler; time is counted in steps."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from schedulers import build, request

from batchrunner import SamplingParams
from batchrunner.engine.policies.mlfq import FeedbackQueue
from batchrunner.engine.predictors.history import History
from batchrunner.engine.predictors.oracle import Oracle
from batchrunner.engine.request import Request
from batchrunner.engine.scheduler import Scheduler

SEATS = 2


def scheduler_for(policy: str, **options: Any) -> Scheduler:
    settings = {"num_blocks": 2000, "block_size": 16, "max_running": SEATS, "max_batch_tokens": 2000}
    return build(**{**settings, "policy": policy, "prefix_caching": False, **options})[0]


def step(scheduler: Scheduler) -> list[Request]:
    schedule = scheduler.schedule()
    ended = scheduler.update(schedule, [5] * len(schedule.sampling_requests))
    scheduler.check_integrity()
    return ended


def run(scheduler: Scheduler, requests: Sequence[Request]) -> dict[Request, int]:
    """All are there at once; returns the step at whose end each has ended."""
    for item in requests:
        scheduler.add(item)
    ends: dict[Request, int] = {}
    number = 0
    while scheduler.has_unfinished:
        number += 1
        ends.update(dict.fromkeys(step(scheduler), number))
    return ends


def ends_under_a_stream(
    scheduler: Scheduler, item: Request, another: Callable[[int], Request], num_steps: int
) -> int | None:
    """The step at which item ends while, for ever, others come faster than they can be served."""
    scheduler.add(item)
    for number in range(num_steps):
        scheduler.add(another(number))
        if item in step(scheduler):
            return number
    return None


def short(number: int, **options: Any) -> Request:
    return request([3, number], 4, **options)


def lengths(seed: int, count: int = 30) -> list[int]:
    rng = random.Random(seed)
    return [rng.choice([2, 3, 5, 8, 40, 90]) for _ in range(count)]


# --- fcfs and prefix ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["fcfs", "prefix"])
def test_who_comes_first_is_admitted_first(policy: str) -> None:
    scheduler = scheduler_for(policy)
    requests = [request([3, i], length) for i, length in enumerate(lengths(0))]
    ends = run(scheduler, requests)
    starts = [ends[item] - item.sampling.max_tokens for item in requests]
    assert starts == sorted(starts)


@pytest.mark.parametrize("policy", ["fcfs", "prefix"])
def test_nobody_starves_who_came_first(policy: str) -> None:
    end = ends_under_a_stream(scheduler_for(policy), request([3], 50), short, 100)
    assert end == 49


def test_the_planned_order_computes_each_prefix_once_where_arrival_order_does_not() -> None:
    """Prefix is fcfs over sorted arrivals; memory for two of eight prefixes."""
    computed = {}
    for order in ("planned", "arrival"):
        rng = random.Random(1)
        rows = [[3 + prefix] * 64 + [rng.randrange(3, 99)] for prefix in range(8) for _ in range(6)]
        rng.shuffle(rows)
        scheduler = scheduler_for("prefix", num_blocks=12, prefix_caching=True)
        run(scheduler, [request(row, 1) for row in (sorted(rows) if order == "planned" else rows)])
        computed[order] = scheduler.counters.num_computed_tokens
    assert computed["planned"] == 8 * 64 + 48
    assert computed["arrival"] > 2 * computed["planned"]


# --- sjf ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_sjf_with_an_oracle_has_the_shortest_mean_waiting(seed: int) -> None:
    wanted = lengths(seed)
    requests = [request([3, i], length, name=str(i)) for i, length in enumerate(wanted)]
    oracle = Oracle({item.request_id: item.sampling.max_tokens for item in requests})
    ends = run(scheduler_for("sjf", predictor=oracle, max_running=1), requests)
    waited = sum(ends[item] - item.sampling.max_tokens for item in requests)
    shortest_first = sorted(wanted)
    assert waited == sum(sum(shortest_first[:i]) for i in range(len(wanted)))  # the least there is: Smith, 1956


def test_sjf_learns_which_template_is_short_while_it_runs() -> None:
    assert mean_stay_of_two_templates("sjf") < 0.75 * mean_stay_of_two_templates("fcfs")


def mean_stay_of_two_templates(policy: str) -> float:
    """How long 120 requests stay on average; one seat, 20 are there at once, one more comes every 22 steps, which is as
    fast as they can be served. Nobody knows how long they are."""
    end, sampling = 9, SamplingParams(max_tokens=100)
    scheduler = scheduler_for(policy, predictor=History(), max_running=1)
    coming = []
    for index in range(120):
        group = "short" if index % 2 else "long"
        coming.append(Request(str(index), [3, index], 2, sampling, frozenset({end}), group=group))
    wanted = {item: 3 if item.group == "short" else 40 for item in coming}
    for item in coming[:20]:
        scheduler.add(item)
    came = dict.fromkeys(coming[:20], 0)
    number, total, rest = 0, 0, coming[20:]
    while scheduler.has_unfinished or rest:
        number += 1
        schedule = scheduler.schedule()
        sampled = [end if item.num_output_tokens + 1 == wanted[item] else 7 for item in schedule.sampling_requests]
        for item in scheduler.update(schedule, sampled):
            total += number - came[item]
        if rest and number % 22 == 0:
            came[rest[0]] = number
            scheduler.add(rest.pop(0))
    return total / len(coming)


# --- priority -------------------------------------------------------------------------------------------------------


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


# --- mlfq -----------------------------------------------------------------------------------------------------------


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
