"""More urgent requests take the places of running ones; only policies that preempt come here."""

from batchrunner.engine.counters import Counters
from batchrunner.engine.kv.block_tables import BlockTables
from batchrunner.engine.kv.chain import block_keys
from batchrunner.engine.request import Request
from batchrunner.engine.scheduling.congestion import Congestion
from batchrunner.engine.scheduling.policies.policy import Policy
from batchrunner.engine.scheduling.queues import Queues, is_limited


class Displacement:
    def __init__(
        self, queues: Queues, tables: BlockTables, policy: Policy, congestion: Congestion, counters: Counters
    ) -> None:
        self._queues = queues
        self._tables = tables
        self._policy = policy
        self._congestion = congestion
        self._counters = counters

    def displace(self) -> None:
        """Make seats and blocks for waiting requests that displace running ones; they are admitted after this.

        Before a step, never inside one. Whoever is displaced waits in its rank. Who waits for KV that a running request
        is about to compute displaces nobody: it lends its rank, so that what it waits for comes first.
        """
        queues, policy = self._queues, self._policy
        chosen: list[Request] = []  # will be admitted, with num_blocks in all
        num_blocks = 0
        while queues.running and (head := queues.first_waiting()) is not None:
            needed = num_blocks + self._tables.pool.num_blocks_for(head.num_tokens)
            has_seat = len(queues.running) + len(chosen) < self._congestion.seats
            has_blocks = needed + len(queues.running) <= queues.num_available(head)
            computing = self._computing_prefix_of(head)
            if computing is not None and policy.lend(head, computing):
                queues.running.sort(key=policy.rank)
            if has_seat and has_blocks:
                queues.waiting.remove(head)
                chosen.append(head)
                num_blocks = needed
            elif is_limited(queues.running[-1]):
                break
            elif computing is None and policy.displaces(head, queues.running[-1]):
                queues.preempt(len(queues.running) - 1)
                self._counters.num_displacements += 1
            else:
                break
        for request in chosen:
            queues.waiting.push(request)

    def _computing_prefix_of(self, head: Request) -> Request | None:
        """The running request whose next tokens are those that head needs next, a block at least."""
        block_size, cache = self._tables.pool.block_size, self._tables.cache
        keys = block_keys(head, block_size)
        depth = next((index for index, key in enumerate(keys) if cache.find(key) is None), len(keys))
        wanted = keys[depth : depth + 1]
        if not wanted:
            return None
        for request in self._queues.running:
            if request.num_remaining_tokens > 1 and block_keys(request, block_size)[depth : depth + 1] == wanted:
                return request
        return None
