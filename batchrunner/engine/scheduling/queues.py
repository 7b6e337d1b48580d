"""Who runs and who waits, and which blocks those who run are promised."""

from bisect import insort
from collections.abc import Collection, Sequence

from batchrunner.engine.kv.block_tables import BlockTables
from batchrunner.engine.kv.foresight import Foresight
from batchrunner.engine.request import Request
from batchrunner.engine.scheduling.policies.policy import Policy
from batchrunner.engine.scheduling.waiting import WaitingQueue

MAX_PREEMPTIONS = 3


def is_limited(request: Request) -> bool:
    """Whether it was preempted so often that it runs only with room for all it can need, and is not preempted again."""
    return request.num_preemptions >= MAX_PREEMPTIONS


class Queues:
    """running: by rank, the best first. only: while set, nobody else enters.

    Who runs holds blocks, and who waits holds none; foresight is told of those who wait.
    """

    def __init__(self, tables: BlockTables, policy: Policy, foresight: Foresight) -> None:
        self.waiting = WaitingQueue(policy)
        self.running: list[Request] = []
        self.only: list[Request] | None = None
        self._tables = tables
        self._policy = policy
        self._foresight = foresight
        self._promised: list[Request] = []  # running ones that may take all the blocks they can ever need

    def add(self, request: Request) -> None:
        """It waits."""
        self._foresight.add(request)
        self.waiting.push(request)

    def first_waiting(self) -> Request | None:
        """Who enters next."""
        if self.only is None:
            return self.waiting.first()
        return next((request for request in self.only if request in self.waiting), None)

    def enter(self, request: Request) -> None:
        """A waiting request becomes a running one."""
        self._waits_no_more(request)
        insort(self.running, request, key=self._policy.rank)
        if is_limited(request):
            self._promised.append(request)

    def preempt(self, index: int) -> Request:
        """Take the place and the blocks of a running request that is not in the schedule; it waits."""
        victim = self.running.pop(index)
        self._put_back(victim)
        return victim

    def preempt_all(self) -> None:
        """But those that have ended: they have still to leave."""
        running = self.running
        self.running = [request for request in running if request.finish_reason is not None]
        for request in running:
            if request.finish_reason is None:
                self._put_back(request)

    def leave(self, requests: Collection[Request]) -> None:
        """Running requests give their blocks back and are gone."""
        for request in requests:
            self._tables.release(request)
        gone = set(requests)
        self.running = [request for request in self.running if request not in gone]

    def remove(self, request: Request) -> None:
        """A request goes, whether it runs or waits."""
        if request in self.waiting:
            self._waits_no_more(request)
        else:
            self.leave([request])

    def rank_again(self, changed: Sequence[Request]) -> None:
        """The policy ranks these otherwise than before."""
        if not changed:
            return
        for request in changed:
            if request in self.waiting:
                self.waiting.rank_again(request)
        self.running.sort(key=self._policy.rank)

    def promise(self) -> None:
        """Once a step: who is promised blocks is who is limited and runs."""
        self._promised = [request for request in self.running if is_limited(request)]

    def num_available(self, request: Request) -> int:
        """Blocks the request may take: those that are free or can be made so, and not promised to others."""
        available = self._tables.num_available
        for other in self._promised:
            if other is not request:
                available -= max(0, self._tables.num_missing(other, other.max_kv_tokens))
        return available

    def check_integrity(self) -> None:
        block_size = self._tables.pool.block_size
        for request in self.running:
            num_held = len(request.block_table) * block_size
            assert request.num_computed_tokens <= min(num_held, request.num_tokens) and request not in self.waiting
        assert not any(request.block_table for request in self.waiting)
        assert self.running == sorted(self.running, key=self._policy.rank)

    def _put_back(self, request: Request) -> None:
        self._tables.release(request)
        self.add(request)

    def _waits_no_more(self, request: Request) -> None:
        self.waiting.remove(request)
        self._foresight.remove(request)
        self._tables.waits_no_more(request)
