"""Decides, before every step, which tokens of which requests the step computes.

The three checks of continuous batching: finished requests have left (update), running ones are served in the order
they were admitted, and waiting ones enter while seats, tokens and blocks last. When blocks run out, the request
admitted last is preempted: its blocks are dropped and computed again later. The oldest therefore always advances.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from batchrunner.engine.batching import Batching
from batchrunner.engine.block_pool import BlockPool
from batchrunner.engine.block_tables import BlockTables
from batchrunner.engine.prefix_cache import PrefixCache
from batchrunner.engine.request import Request
from batchrunner.engine.schedule import Counters, Schedule
from batchrunner.errors import RowError


@dataclass(frozen=True, slots=True)
class Limits:
    """max_running: requests at once. max_batch_tokens: tokens computed in one step."""

    max_running: int
    max_batch_tokens: int
    prefix_caching: bool = True


class Scheduler:
    def __init__(self, pool: BlockPool, cache: PrefixCache, batching: Batching, limits: Limits) -> None:
        self.pool = pool
        self.cache = cache
        self.tables = BlockTables(pool, cache, prefix_caching=limits.prefix_caching)
        self.batching = batching
        self.limits = limits
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []  # oldest first
        self.only: list[Request] | None = None  # while set, nobody else enters
        self.counters = Counters()

    @property
    def has_unfinished(self) -> bool:
        return bool(self.waiting or self.running)

    def add(self, request: Request) -> None:
        """Queue a request. Raises RowError if it can never be answered."""
        if request.num_prompt_tokens == 0:
            raise RowError("empty_prompt", "the prompt has no tokens")
        if request.num_prompt_tokens >= request.max_total_tokens:
            raise RowError(
                "prompt_too_long",
                f"the prompt has {request.num_prompt_tokens:,} tokens; the model's context of "
                f"{request.max_total_tokens:,} leaves no room for an answer",
            )
        if self.pool.num_blocks_for(request.max_kv_tokens) > self.pool.num_blocks:
            raise RowError(
                "exceeds_kv_memory",
                f"the prompt of {request.num_prompt_tokens:,} tokens and up to {request.sampling.max_tokens:,} new "
                f"ones need KV memory for {request.max_kv_tokens:,} tokens; the pool holds "
                f"{self.pool.num_blocks * self.pool.block_size:,} (engine.kv_tokens, engine.kv_memory)",
            )
        self.waiting.append(request)

    def schedule(self) -> Schedule:
        schedule = Schedule()
        self._serve_running(schedule)
        # Whoever enters after a preemption would take the blocks the victim needs to come back.
        if not schedule.preempted:
            self._admit_waiting(schedule)
        self.counters.num_steps += 1
        return schedule

    def update(self, schedule: Schedule, sampled: Sequence[int]) -> list[Request]:
        """Take in what the step computed: one token for each of schedule.sampling_requests. Returns who has ended."""
        for node in schedule.new_nodes:
            node.computed = True
        sampling_requests = schedule.sampling_requests
        for item in schedule.scheduled:
            item.request.num_computed_tokens = item.end
        finished = []
        for request, token_id in zip(sampling_requests, sampled, strict=True):
            request.append(token_id)
            if request.finish_reason is not None:
                self.tables.release(request)
                finished.append(request)
        self.counters.num_output_tokens += len(sampled)
        if finished:
            self.running = [request for request in self.running if request.finish_reason is None]
        return finished

    def abandon(self, schedule: Schedule) -> None:
        """The step failed, or all running requests are to start over: they give everything back and wait again."""
        for node in schedule.new_nodes:
            self.cache.forget(node)
        for request in reversed(self.running):
            self._give_back(request, Schedule())
            self.waiting.appendleft(request)
        self.running = []

    def check_integrity(self) -> None:
        tables = [request.block_table for request in self.running]
        self.pool.check_integrity(tables, self.cache.cached_blocks)
        self.cache.check_integrity()
        for request in self.running:
            held = len(request.block_table) * self.pool.block_size
            assert request.num_computed_tokens <= min(held, request.num_tokens)
        assert not any(request.block_table for request in self.waiting)

    def _serve_running(self, schedule: Schedule) -> None:
        position = 0
        while position < len(self.running) and schedule.num_tokens < self.limits.max_batch_tokens:
            request = self.running[position]
            self.tables.reuse(request, schedule)
            num_new_tokens = self._num_new_tokens(request, schedule)
            if not self._make_room(request, num_new_tokens, schedule):
                break
            if num_new_tokens:
                self._plan(request, num_new_tokens, schedule)
            position += 1

    def _admit_waiting(self, schedule: Schedule) -> None:
        if not self.batching.may_admit(len(self.running)):
            return
        is_full = False
        while self.waiting and len(self.running) < self.limits.max_running and not is_full:
            request = self.waiting[0]
            if self.only is not None and request not in self.only:
                break
            self.tables.reuse(request, schedule)
            num_new_tokens = self._num_new_tokens(request, schedule)
            is_full = num_new_tokens == 0
            # All that is known of the request must fit, and leave every running one a block to grow into.
            missing = self.tables.num_missing(request, request.num_tokens)
            if is_full or missing + len(self.running) > self.tables.num_available:
                self._give_back(request, schedule)
                break
            self.waiting.popleft()
            self.running.append(request)
            self.counters.num_prompt_tokens += request.num_prompt_tokens if request.high_water == 0 else 0
            self._plan(request, num_new_tokens, schedule)
        self.batching.admitted(is_full=is_full)

    def _num_new_tokens(self, request: Request, schedule: Schedule) -> int:
        """As many as fit in the step, possibly none.

        A part of a prompt ends with a full block: one that ended inside a block could not be shared, and its siblings
        would compute their own from there on. Only a step of less than a block has no choice.
        """
        budget = self.limits.max_batch_tokens - schedule.num_tokens
        if request.num_remaining_tokens <= budget:
            return request.num_remaining_tokens
        end = request.num_computed_tokens + budget
        aligned = end - end % self.pool.block_size
        if aligned <= request.num_computed_tokens:
            return 0 if schedule.num_tokens else budget
        return aligned - request.num_computed_tokens

    def _make_room(self, request: Request, num_new_tokens: int, schedule: Schedule) -> bool:
        """Preempt from the end of the running requests until the tokens fit; False if request itself had to go."""
        missing = self.tables.num_missing(request, request.num_computed_tokens + num_new_tokens)
        while missing > self.tables.num_available:
            victim = self.running.pop()
            self._give_back(victim, schedule)
            victim.num_preemptions += 1
            self.counters.num_preemptions += 1
            schedule.preempted.append(victim)
            self.waiting.appendleft(victim)
            if victim is request:
                return False
        return True

    def _plan(self, request: Request, num_new_tokens: int, schedule: Schedule) -> None:
        """Enter the tokens into the step, with blocks to hold them. There is room for them."""
        item = schedule.add(request, num_new_tokens)
        self.tables.extend(request, item.end, schedule)
        num_found = max(0, min(item.start, request.num_prompt_tokens) - request.high_water)
        request.num_cached_tokens += num_found
        self.counters.num_cached_tokens += num_found
        self.counters.num_computed_tokens += num_new_tokens
        self.counters.num_recomputed_tokens += max(0, min(request.high_water, item.end) - item.start)
        request.high_water = max(request.high_water, item.end)

    def _give_back(self, request: Request, schedule: Schedule) -> None:
        """Take all blocks from a request that is not in the schedule."""
        if schedule.copies:
            schedule.copies = [copy for copy in schedule.copies if copy.request is not request]
        self.tables.release(request)
