"""What the policies fcfs, prefix and sjf promise, on the real scheduler; time is counted in steps."""

import random

import pytest

from batchrunner import SamplingParams
from batchrunner.engine.request import Request
from batchrunner.engine.scheduling.predictors.history import History
from batchrunner.engine.scheduling.predictors.oracle import Oracle
from tests.engine.scheduling.policies.policy_runs import ends_under_a_stream, lengths, run, scheduler_for, short
from tests.engine.scheduling.schedulers import request

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
