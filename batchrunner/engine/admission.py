"""Waiting requests enter while seats, tokens of the step, and blocks last."""

from typing import TYPE_CHECKING

from batchrunner.engine.request import Request
from batchrunner.engine.schedule import Schedule

if TYPE_CHECKING:
    from batchrunner.engine.scheduler import Scheduler

MAX_PREEMPTIONS = 3


def is_limited(request: Request) -> bool:
    """Whether it was preempted so often that it runs only with room for all it can need, and is not preempted again."""
    return request.num_preemptions >= MAX_PREEMPTIONS


def admit(scheduler: "Scheduler", schedule: Schedule) -> None:
    """In the order of their ranks; the first that does not fit keeps out those behind it, so that nobody starves."""
    if not scheduler.batching.may_admit(len(scheduler.running)):
        return
    is_full = False
    while not is_full and len(scheduler.running) < scheduler.congestion.seats:
        request = scheduler.first_waiting()
        if request is None:
            break
        is_full = not _admit_one(scheduler, request, schedule)
        if request in scheduler.waiting:
            break
    scheduler.batching.admitted(is_full=is_full)


def _admit_one(scheduler: "Scheduler", request: Request, schedule: Schedule) -> bool:
    """Admit the request if it fits; False if the step has no tokens left for it, or for what it shares with others."""
    if any(cut.is_shared_by(request) for cut in schedule.cut):
        return False
    tables, builder = scheduler.tables, scheduler.builder
    available = scheduler.num_available(request)
    match = tables.match(request, available)
    if not builder.num_new_tokens(request, match.num_tokens(tables.pool.block_size), schedule):
        return False
    # All that is known of the request must fit, and leave every running one that will grow a block to grow into.
    num_tokens = request.max_kv_tokens if is_limited(request) else request.num_tokens
    needed = tables.num_needed(request, match, num_tokens)
    if needed + scheduler.cadence.num_growing(scheduler.running, available - needed) > available:
        return True
    scheduler.enter(request)
    scheduler.counters.num_prompt_tokens += request.num_prompt_tokens if request.high_water == 0 else 0
    builder.take(request, match, schedule)
    builder.add(request, builder.num_new_tokens(request, request.num_computed_tokens, schedule), schedule)
    return True
