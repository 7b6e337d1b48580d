"""Decides, before every step, which tokens of which requests the step computes.

The three checks of continuous batching: finished requests have left (update), running ones are served, and waiting ones
enter while seats, tokens and blocks last. The policy ranks requests: the best is served first and admitted first. When
blocks run out, the last is preempted; the first therefore always advances. A victim's blocks stay cached until others
need them; then they move to a lower tier, or are dropped and computed again, whichever is cheaper (lower_tiers.py).
"""

from collections.abc import Collection, Sequence

from batchrunner.engine.counters import Counters
from batchrunner.engine.kv.block_tables import BlockTables
from batchrunner.engine.kv.foresight import Foresight
from batchrunner.engine.kv.swap_choice import MeasuredCosts
from batchrunner.engine.request import Request
from batchrunner.engine.scheduling.admission import Admission
from batchrunner.engine.scheduling.batching import Batching
from batchrunner.engine.scheduling.cadence import Cadence
from batchrunner.engine.scheduling.congestion import Congestion
from batchrunner.engine.scheduling.displacement import Displacement
from batchrunner.engine.scheduling.limits import Limits, check_request
from batchrunner.engine.scheduling.policies.policy import Policy
from batchrunner.engine.scheduling.predictors.predictor import LengthPredictor
from batchrunner.engine.scheduling.queues import Queues, is_limited
from batchrunner.engine.scheduling.schedule import Schedule
from batchrunner.engine.scheduling.step_builder import StepBuilder

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
        self.limits = limits
        self.cadence = cadence
        self.predictor = predictor
        self.queues = Queues(tables, policy, foresight)
        self.congestion = Congestion(limits.max_running, costs)
        self.counters = Counters()
        self.foresight = foresight
        self._builder = StepBuilder(tables, limits.max_batch_tokens, self.counters)
        self._admission = Admission(
            self.queues, tables, self._builder, batching, cadence, self.congestion, self.counters
        )
        self._displacement = Displacement(self.queues, tables, policy, self.congestion, self.counters)
        self._num_added = 0

    @property
    def running(self) -> Sequence[Request]:
        """By rank, the best first."""
        return self.queues.running

    @property
    def waiting(self) -> Collection[Request]:
        return self.queues.waiting

    @property
    def has_unfinished(self) -> bool:
        return bool(self.queues.waiting or self.queues.running)

    def add(self, request: Request) -> None:
        """Queue a request. Raises RowError if it can never be answered."""
        check_request(request, self.pool)
        self._num_added += 1
        request.number = self._num_added
        self.foresight.arrived(request)
        self.queues.add(request)

    def cancel(self, request: Request) -> None:
        """Forget a request that has not ended, between two steps."""
        self.queues.remove(request)
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
        self.queues.rank_again(self.policy.ran(schedule.sampling_requests))
        leaving = self.cadence.leaving(ended, self.running)
        if leaving:
            self.queues.leave(leaving)
        for request in leaving:
            self._forget(request)
            self.predictor.observe(request)
        return leaving

    def abandon(self, schedule: Schedule) -> None:
        """The step failed, or all running requests are to start over: they give everything back and wait again."""
        for node in schedule.new_nodes:
            self.cache.forget(node)
        self.tables.below.undo(schedule)
        self.queues.preempt_all()

    def check_integrity(self) -> None:
        self.pool.check_integrity([item.block_table for item in self.running], self.cache.cached_blocks)
        self.cache.check_integrity()
        self.tables.below.check_integrity()
        self.queues.check_integrity()

    def _pass(self, schedule: Schedule) -> None:
        self.queues.promise()
        if self.policy.preempts and self._admission.is_open:
            self._displacement.displace()
            self.queues.promise()
        self._serve_running(schedule)
        # Whoever enters after a preemption would take the blocks the victim needs to come back.
        if not schedule.preempted:
            self._admission.admit(schedule)
        self.cadence.passed(self.running)

    def _serve_running(self, schedule: Schedule) -> None:
        queues, builder = self.queues, self._builder
        position = 0
        while position < len(queues.running) and schedule.num_tokens < self.limits.max_batch_tokens:
            request = queues.running[position]
            if request.num_computed_tokens < request.settled_until:
                schedule.add(request, 1)
            else:
                builder.take(request, self.tables.match(request, queues.num_available(request)), schedule)
                num_new_tokens = builder.num_new_tokens(request, request.num_computed_tokens, schedule)
                if not self._make_room(request, num_new_tokens, schedule):
                    continue  # it had to go itself; those behind it have their room promised
                builder.add(request, num_new_tokens, schedule)
            position += 1

    def _go_on(self, schedule: Schedule) -> None:
        """Between two passes: those who run advance with the blocks there are, and expected seats are taken."""
        self.queues.promise()
        for request in self.running:
            if request.finish_reason is None and schedule.num_tokens < self.limits.max_batch_tokens:
                num_new_tokens = self._builder.num_new_tokens(request, request.num_computed_tokens, schedule)
                missing = self.tables.num_missing(request, request.num_computed_tokens + num_new_tokens)
                if missing <= self.queues.num_available(request):
                    self._builder.add(request, num_new_tokens, schedule)
        if self.cadence.has_successors:
            self._admission.admit(schedule)

    def _make_room(self, request: Request, num_new_tokens: int, schedule: Schedule) -> bool:
        """Preempt from the end of the running requests until the tokens fit; False if request itself had to go."""
        end = request.num_computed_tokens + num_new_tokens
        while self.tables.num_missing(request, end) > self.queues.num_available(request):
            index = len(self.running) - 1
            while is_limited(self.running[index]):
                index -= 1
            schedule.forget_copies_to(self.running[index].block_table)
            victim = self.queues.preempt(index)
            victim.num_preemptions += 1
            self.counters.num_preemptions += 1
            schedule.preempted.append(victim)
            if victim is request:
                return False
        return True

    def _count(self, schedule: Schedule) -> None:
        self.counters.count_step(schedule.num_tokens, schedule.moves)
        self.congestion.observe(schedule.num_tokens, schedule.num_wasted_tokens, len(self.running))
        self.counters.num_thrashes = self.congestion.num_thrashes

    def _forget(self, request: Request) -> None:
        self.policy.ended(request)
        self.cadence.forget(request)
