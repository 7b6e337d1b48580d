"""More urgent requests take the places of running ones; only policies that preempt come here."""

from typing import TYPE_CHECKING

from batchrunner.engine.admission import is_limited
from batchrunner.engine.chain import block_keys
from batchrunner.engine.request import Request

if TYPE_CHECKING:
    from batchrunner.engine.scheduler import Scheduler


def displace(scheduler: "Scheduler") -> None:
    """Make seats and blocks for waiting requests that displace running ones; they are admitted after this.

    Before a step, never inside one. Whoever is displaced waits in its rank. Who waits for KV that a running request is
    about to compute displaces nobody: it lends its rank, so that what it waits for comes first.
    """
    chosen: list[Request] = []  # will be admitted, with num_blocks in all
    num_blocks = 0
    while scheduler.running and (head := scheduler.first_waiting()) is not None:
        needed = num_blocks + scheduler.pool.num_blocks_for(head.num_tokens)
        has_seat = len(scheduler.running) + len(chosen) < scheduler.congestion.seats
        has_blocks = needed + len(scheduler.running) <= scheduler.num_available(head)
        computing = _computing_prefix_of(head, scheduler)
        if computing is not None and scheduler.policy.lend(head, computing):
            scheduler.running.sort(key=scheduler.policy.rank)
        if has_seat and has_blocks:
            scheduler.waiting.remove(head)
            chosen.append(head)
            num_blocks = needed
        elif is_limited(scheduler.running[-1]):
            break
        elif computing is None and scheduler.policy.displaces(head, scheduler.running[-1]):
            scheduler.preempt(len(scheduler.running) - 1)
            scheduler.counters.num_displacements += 1
        else:
            break
    for request in chosen:
        scheduler.waiting.push(request)


def _computing_prefix_of(head: Request, scheduler: "Scheduler") -> Request | None:
    """The running request whose next tokens are those that head needs next, a block at least."""
    block_size = scheduler.pool.block_size
    keys = block_keys(head, block_size)
    depth = next((index for index, key in enumerate(keys) if scheduler.cache.find(key) is None), len(keys))
    wanted = keys[depth : depth + 1]
    if not wanted:
        return None
    for request in scheduler.running:
        if request.num_remaining_tokens > 1 and block_keys(request, block_size)[depth : depth + 1] == wanted:
            return request
    return None
