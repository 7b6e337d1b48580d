"""Decides, before every step, which tokens of which requests the step computes.

The three checks of continuous batching: finished requests have left (update), running ones are served, and waiting ones
enter while seats, tokens and blocks last. The policy ranks requests: the best is served first and admitted first. When
blocks run out, the last is preempted; the first therefore always advances. A victim's blocks stay cached until others
need them; then they move to a lower tier, or are dropped and computed again, whichever is cheaper (lower_tiers.py).
"""

from bisect import insort
from collections.abc import Sequence

from batchrunner.engine.admission import admit, is_limited
from batchrunner.engine.batching import Batching
from batchrunner.engine.block_tables import BlockTables
from batchrunner.engine.cadence import Cadence
from batchrunner.engine.congestion import Congestion
from batchrunner.engine.counters import Counters
from batchrunner.engine.displacement import displace
from batchrunner.engine.foresight import Foresight
from batchrunner.engine.limits import Limits, check_request
from batchrunner.engine.policies.policy import Policy
from batchrunner.engine.predictors.predictor import LengthPredictor
from batchrunner.engine.request import Request
from batchrunner.engine.schedule import Schedule
from batchrunner.engine.step_builder import StepBuilder
from batchrunner.engine.swap_choice import MeasuredCosts
from batchrunner.engine.waiting import WaitingQueue

SAMPLE_EVERY = 16  # steps: how full the blocks are is counted now and then


class Scheduler:
    def __init__(
        self,
        tables: BlockTables,
        policy: Policy,
        batching: Batching,
        limits: Limits,
        foresight: Foresight,
        cadence: Cadence,
        predictor: LengthPredictor,
        costs: MeasuredCosts,
    ) -> None:
        self.tables = tables
        self.pool = tables.pool
        self.cache = tables.cache
        self.policy = policy
        self.batching = batching
        self.limits = limits
        self.foresight = foresight
        self.cadence = cadence
        self.predictor = predictor
        self.waiting = WaitingQueue(policy)
        self.running: list[Request] = []  # by rank, the best first
        self.only: list[Request] | None = None  # while set, nobody else enters
        self.congestion = Congestion(limits.max_running, costs)
        self.counters = Counters()
        self.builder = StepBuilder(tables, limits.max_batch_tokens, self.counters)
        self._promised: list[Request] = []  # running ones that may take all the blocks they can ever need
        self._num_added = 0

    @property
    def has_unfinished(self) -> bool:
        return bool(self.waiting or self.running)

    def add(self, request: Request) -> None:
        """Queue a request. Raises RowError if it can never be answered."""
        check_request(request, self.pool)
        self._num_added += 1
        request.number = self._num_added
        self.foresight.arrived(request)
        self._enqueue(request)

    def cancel(self, request: Request) -> None:
        """Forget a request that has not ended, between two steps."""
        if request in self.waiting:
            self._dequeue(request)
        else:
            self.running.remove(request)
            self.tables.release(request)
        self._forget(request)

    def schedule(self) -> Schedule:
        """The next step. Between two passes (schedule_every) it may be empty: nobody can go on, or all have ended."""
        schedule = Schedule()
        if self.cadence.begin_step():
            self._pass(schedule)
        else:
            self._go_on(schedule)
        self._count(schedule)
        return schedule

    def update(self, schedule: Schedule, sampled: Sequence[int]) -> list[Request]:
        """Take in what the step computed: one token for each of schedule.sampling_requests. Returns who has left."""
        for node in schedule.new_nodes:
            node.computed = True
        for item in schedule.scheduled:
            item.request.num_computed_tokens = item.end
        ended = []
        for request, token_id in zip(schedule.sampling_requests, sampled, strict=True):
            request.append(token_id)
            if request.finish_reason is not None:
                ended.append(request)
        self.counters.num_output_tokens += len(sampled)
        if self.counters.num_steps % SAMPLE_EVERY == 0:
            self.counters.count_slots(self.running, self.pool.block_size)
        self._rank_again(self.policy.ran(schedule.sampling_requests))
        leaving = self.cadence.leaving(ended, self.running)
        for request in leaving:
            self.tables.release(request)
            self._forget(request)
            self.predictor.observe(request)
        if leaving:
            gone = set(leaving)
            self.running = [request for request in self.running if request not in gone]
        return leaving

    def abandon(self, schedule: Schedule) -> None:
        """The step failed, or all running requests are to start over: they give everything back and wait again."""
        for node in schedule.new_nodes:
            self.cache.forget(node)
        self.tables.below.undo(schedule)
        running = self.running
        self.running = [request for request in running if request.finish_reason is not None]  # have still to leave
        for request in running:
            if request.finish_reason is None:
                self._put_back(request)

    def num_available(self, request: Request) -> int:
        """Blocks the request may take: those that are free or can be made so, and not promised to others."""
        available = self.tables.num_available
        for other in self._promised:
            if other is not request:
                available -= max(0, self.tables.num_missing(other, other.max_kv_tokens))
        return available

    def first_waiting(self) -> Request | None:
        """Who enters next."""
        if self.only is None:
            return self.waiting.first()
        return next((request for request in self.only if request in self.waiting), None)

    def enter(self, request: Request) -> None:
        """A waiting request becomes a running one."""
        self._dequeue(request)
        insort(self.running, request, key=self.policy.rank)
        if is_limited(request):
            self._promised.append(request)

    def preempt(self, index: int) -> Request:
        """Take the place and the blocks of a running request that is not in the schedule."""
        victim = self.running.pop(index)
        self._put_back(victim)
        return victim

    def check_integrity(self) -> None:
        self.pool.check_integrity([item.block_table for item in self.running], self.cache.cached_blocks)
        self.cache.check_integrity()
        self.tables.below.check_integrity()
        for request in self.running:
            num_held = len(request.block_table) * self.pool.block_size
            assert request.num_computed_tokens <= min(num_held, request.num_tokens) and request not in self.waiting
        assert not any(request.block_table for request in self.waiting)
        assert self.running == sorted(self.running, key=self.policy.rank)

    def _pass(self, schedule: Schedule) -> None:
        self._promise()
        if self.policy.preempts and self.batching.may_admit(len(self.running)):
            displace(self)
            self._promise()
        self._serve_running(schedule)
        # Whoever enters after a preemption would take the blocks the victim needs to come back.
        if not schedule.preempted:
            admit(self, schedule)
        self.cadence.passed(self.running)

    def _serve_running(self, schedule: Schedule) -> None:
        position = 0
        while position < len(self.running) and schedule.num_tokens < self.limits.max_batch_tokens:
            request = self.running[position]
            if request.num_computed_tokens < request.settled_until:
                schedule.add(request, 1)
            else:
                self.builder.take(request, self.tables.match(request, self.num_available(request)), schedule)
                num_new_tokens = self.builder.num_new_tokens(request, request.num_computed_tokens, schedule)
                if not self._make_room(request, num_new_tokens, schedule):
                    continue  # it had to go itself; those behind it have their room promised
                self.builder.add(request, num_new_tokens, schedule)
            position += 1

    def _go_on(self, schedule: Schedule) -> None:
        """Between two passes: those who run advance with the blocks there are, and expected seats are taken."""
        self._promise()
        for request in self.running:
            if request.finish_reason is None and schedule.num_tokens < self.limits.max_batch_tokens:
                num_new_tokens = self.builder.num_new_tokens(request, request.num_computed_tokens, schedule)
                missing = self.tables.num_missing(request, request.num_computed_tokens + num_new_tokens)
                if missing <= self.num_available(request):
                    self.builder.add(request, num_new_tokens, schedule)
        if self.cadence.has_successors:
            admit(self, schedule)

    def _make_room(self, request: Request, num_new_tokens: int, schedule: Schedule) -> bool:
        """Preempt from the end of the running requests until the tokens fit; False if request itself had to go."""
        end = request.num_computed_tokens + num_new_tokens
        while self.tables.num_missing(request, end) > self.num_available(request):
            index = len(self.running) - 1
            while is_limited(self.running[index]):
                index -= 1
            schedule.forget_copies_to(self.running[index].block_table)
            victim = self.preempt(index)
            victim.num_preemptions += 1
            self.counters.num_preemptions += 1
            schedule.preempted.append(victim)
            if victim is request:
                return False
        return True

    def _count(self, schedule: Schedule) -> None:
        self.counters.count_step(schedule)
        self.congestion.observe(schedule.num_tokens, schedule.num_wasted_tokens, len(self.running))
        self.counters.num_thrashes = self.congestion.num_thrashes

    def _forget(self, request: Request) -> None:
        self.policy.ended(request)
        self.cadence.forget(request)

    def _promise(self) -> None:
        self._promised = [request for request in self.running if is_limited(request)]

    def _enqueue(self, request: Request) -> None:
        self.foresight.add(request)
        self.waiting.push(request)

    def _dequeue(self, request: Request) -> None:
        self.waiting.remove(request)
        self.foresight.remove(request)
        self.tables.waits_no_more(request)

    def _put_back(self, request: Request) -> None:
        self.tables.release(request)
        self._enqueue(request)

    def _rank_again(self, changed: Sequence[Request]) -> None:
        if not changed:
            return
        for request in changed:
            if request in self.waiting:
                self.waiting.rank_again(request)
        self.running.sort(key=self.policy.rank)
