"""Schedulers of one policy run to the end or under a stream of requests, for tests; time is counted in steps."""

import random
from collections.abc import Callable, Sequence
from typing import Any

from batchrunner.engine.request import Request
from batchrunner.engine.scheduling.scheduler import Scheduler
from tests.engine.scheduling.schedulers import build, request

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
