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
from batchrunner.engine.prefix_cache import Node, PrefixCache
from batchrunner.engine.request import Request
from batchrunner.engine.schedule import BlockCopy, Counters, Schedule
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
        self.batching = batching
        self.limits = limits
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []  # oldest first
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
                self.cache.release(request.block_table)
                request.block_table = []
                finished.append(request)
        self.counters.num_output_tokens += len(sampled)
        if finished:
            self.running = [request for request in self.running if request.finish_reason is None]
        return finished

    def check_integrity(self) -> None:
        tables = [request.block_table for request in self.running]
        self.pool.check_integrity(tables, self.cache.cached_blocks)
        self.cache.check_integrity()
        for request in self.running:
            held = len(request.block_table) * self.pool.block_size
            assert request.num_computed_tokens <= min(held, request.num_tokens)
        assert not any(request.block_table for request in self.waiting)

    @property
    def _num_available(self) -> int:
        return self.pool.num_free + self.cache.num_evictable

    def _serve_running(self, schedule: Schedule) -> None:
        position = 0
        while position < len(self.running) and schedule.num_tokens < self.limits.max_batch_tokens:
            request = self.running[position]
            self._reuse(request, schedule)
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
            self._reuse(request, schedule)
            num_new_tokens = self._num_new_tokens(request, schedule)
            is_full = num_new_tokens == 0
            # All that is known of the request must fit, and leave every running one a block to grow into.
            missing = self._num_blocks_missing(request, request.num_tokens)
            if is_full or missing + len(self.running) > self._num_available:
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

    def _num_blocks_missing(self, request: Request, num_tokens: int) -> int:
        return self.pool.num_blocks_for(num_tokens) - len(request.block_table)

    def _make_room(self, request: Request, num_new_tokens: int, schedule: Schedule) -> bool:
        """Preempt from the end of the running requests until the tokens fit; False if request itself had to go."""
        missing = self._num_blocks_missing(request, request.num_computed_tokens + num_new_tokens)
        while missing > self._num_available:
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
        for _ in range(self._num_blocks_missing(request, item.end)):
            request.block_table.append(self._allocate())
        self._register(request, item.end, schedule)
        num_found = max(0, min(item.start, request.num_prompt_tokens) - request.high_water)
        request.num_cached_tokens += num_found
        self.counters.num_cached_tokens += num_found
        self.counters.num_computed_tokens += num_new_tokens
        self.counters.num_recomputed_tokens += max(0, min(request.high_water, item.end) - item.start)
        request.high_water = max(request.high_water, item.end)

    def _allocate(self) -> int:
        if self.pool.num_free == 0:
            self.cache.evict()
        return self.pool.allocate()

    def _give_back(self, request: Request, schedule: Schedule) -> None:
        """Take all blocks from a request that is not in the schedule."""
        if schedule.copies:
            schedule.copies = [copy for copy in schedule.copies if copy.request is not request]
        self.cache.release(request.block_table)
        request.block_table = []
        request.num_registered_blocks = 0
        request.num_computed_tokens = 0

    def _last_node(self, request: Request) -> Node:
        if request.num_registered_blocks == 0:
            return self.cache.root
        node = self.cache.node_of(request.block_table[request.num_registered_blocks - 1])
        assert node is not None, "a registered block left the cache while a request held it"
        return node

    def _reuse(self, request: Request, schedule: Schedule) -> None:
        """Catch up from the cache as far as it goes. One token is always left to compute: its logits are needed."""
        block_size, token_ids = self.pool.block_size, request.token_ids
        if not self.limits.prefix_caching or request.num_remaining_tokens == 1:
            return
        if request.num_computed_tokens != request.num_registered_blocks * block_size:
            return  # in the middle of a block of its own
        parent = self._last_node(request)
        while request.num_remaining_tokens > block_size:
            start = request.num_computed_tokens
            node = self.cache.child(parent, token_ids[start : start + block_size])
            if node is None:
                break
            self.cache.hold(node)
            # Blocks allotted ahead of time never exist: a table ends where its computed tokens end.
            request.block_table.append(node.block)
            request.num_registered_blocks += 1
            request.num_computed_tokens += block_size
            parent = node
        start = request.num_computed_tokens
        wanted = token_ids[start : min(start + block_size, request.num_tokens - 1)]
        partial = self.cache.partial_child(parent, wanted) if wanted and self._num_available else None
        if partial is not None:
            target = self._allocate()
            request.block_table.append(target)
            schedule.copies.append(BlockCopy(partial.node.block, target, request))
            request.num_computed_tokens += partial.num_tokens

    def _register(self, request: Request, end: int, schedule: Schedule) -> None:
        """Enter the blocks that are full once the tokens up to end are computed into the cache."""
        if not self.limits.prefix_caching:
            return
        block_size = self.pool.block_size
        while (request.num_registered_blocks + 1) * block_size <= end:
            index = request.num_registered_blocks
            parent = self._last_node(request)
            token_ids = request.token_ids[index * block_size : (index + 1) * block_size]
            is_computed = (index + 1) * block_size <= request.num_computed_tokens
            twin = self.cache.child(parent, token_ids)
            if twin is None:
                node = self.cache.insert(parent, token_ids, request.block_table[index])
                node.computed = is_computed
                if not is_computed:
                    schedule.new_nodes.append(node)
            elif is_computed:  # somebody else was first: share theirs, so that one copy is kept
                self.cache.hold(twin)
                self.pool.release(request.block_table[index])
                request.block_table[index] = twin.block
            else:
                break  # this step still writes to our own block; share theirs next time
            request.num_registered_blocks += 1
