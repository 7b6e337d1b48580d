"""The scheduler, pool and prefix cache together, under everything hypothesis can think of."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from batchrunner.engine.kv.places import Place
from batchrunner.engine.kv.swap_choice import MeasuredCosts
from batchrunner.engine.request import Request
from batchrunner.engine.scheduling.queues import MAX_PREEMPTIONS
from tests.engine.fakes import expected_output
from tests.engine.scheduling.schedulers import build, configurations, request, run_all, step

tokens = st.integers(3, 6)  # few different ones, so that prompts share beginnings by chance
prompts = st.lists(tokens, min_size=1, max_size=24)


class SchedulerMachine(RuleBasedStateMachine):
    """Requests arrive between steps; every invariant holds after every step, and every answer is the right one."""

    @initialize(
        block_size=st.sampled_from([1, 3, 4, 16]),
        pool_tokens=st.integers(40, 160),
        max_running=st.integers(1, 6),
        max_batch_tokens=st.integers(1, 40),
        options=configurations,
        host_blocks=st.sampled_from([0, 1, 5, 40]),
        disk_blocks=st.sampled_from([0, 3, 40]),
        swap_is_cheap=st.booleans(),
    )
    def start(
        self, block_size: int, pool_tokens: int, options: dict[str, Any], swap_is_cheap: bool, **sizes: int
    ) -> None:
        seconds = dict.fromkeys(Place, 0.01 if swap_is_cheap else 1.0)
        self.scheduler, self.runner = build(
            num_blocks=-(-pool_tokens // block_size),
            block_size=block_size,
            costs=MeasuredCosts(block_size, seconds, seconds, tokens_per_second=10 * block_size),
            **options,
            **sizes,
        )
        self.added: list[Request] = []
        self.cancelled: list[Request] = []

    @rule(prompt=prompts, max_tokens=st.integers(1, 12), priority=st.integers(0, 3))
    def add(self, prompt: list[int], max_tokens: int, priority: int) -> None:
        item = request(prompt, max_tokens, priority=priority)
        self.scheduler.add(item)
        self.added.append(item)

    @rule(pick=st.integers(0, 20))
    def cancel(self, pick: int) -> None:
        unfinished = [item for item in self.added if item.finish_reason is None]
        if unfinished:
            item = unfinished[pick % len(unfinished)]
            self.scheduler.cancel(item)
            self.added.remove(item)
            self.cancelled.append(item)

    @rule(num_steps=st.integers(1, 10))
    def run_steps(self, num_steps: int) -> None:
        for _ in range(num_steps):
            if self.scheduler.has_unfinished:
                step(self.scheduler, self.runner)

    @invariant()
    def finished_answers_are_right(self) -> None:
        for item in getattr(self, "added", ()):
            prompt = item.token_ids[: item.num_prompt_tokens]
            assert item.output_token_ids == expected_output(prompt, item.num_output_tokens)

    def teardown(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        while self.scheduler.has_unfinished:
            step(self.scheduler, self.runner)
        assert all(item.finish_reason == "length" for item in self.added)
        pool, cache = self.scheduler.pool, self.scheduler.cache
        assert pool.num_free + cache.num_evictable == pool.num_blocks, "a block leaked"
        assert cache.num_evictable == len(cache)
        counters = self.scheduler.counters
        asked = [*self.added, *(item for item in self.cancelled if item.high_water)]
        assert counters.num_computed_tokens == self.runner.num_tokens
        assert counters.num_prompt_tokens == sum(item.num_prompt_tokens for item in asked)
        assert counters.num_output_tokens == sum(item.num_output_tokens for item in asked)
        # Every token is computed or found once; beyond that only what a preemption threw away.
        once = sum(item.num_tokens - bool(item.finish_reason) for item in asked)
        assert counters.num_computed_tokens - counters.num_recomputed_tokens + counters.num_cached_tokens <= once
        if counters.num_preemptions == counters.num_displacements == 0:
            assert counters.num_recomputed_tokens == 0
        assert max((item.num_preemptions for item in asked), default=0) <= MAX_PREEMPTIONS


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(
    max_examples=150, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@settings(max_examples=60, deadline=None)
@given(
    stems=st.lists(prompts, min_size=1, max_size=4),
    picks=st.lists(st.tuples(st.integers(0, 3), prompts, st.integers(1, 8)), min_size=1, max_size=14),
    block_size=st.sampled_from([1, 4, 7]),
)
def test_enough_memory_computes_no_shared_block_twice(
    stems: list[list[int]], picks: list[tuple[int, list[int], int]], block_size: int
) -> None:
    """The prompt tokens computed are those of distinct full blocks, plus at most an unfinished block a request.

    Equal prompts that run together generate the same tokens side by side, each for itself.
    """
    scheduler, runner = build(num_blocks=2000, block_size=block_size, max_running=20, max_batch_tokens=1000)
    requests = [request(stems[stem % len(stems)] + own, length) for stem, own, length in picks]
    run_all(scheduler, runner, requests)
    blocks = set()
    rest = 0
    for item in requests:
        num_full = item.num_prompt_tokens // block_size
        blocks |= {tuple(item.token_ids[: (i + 1) * block_size]) for i in range(num_full)}
        rest += item.num_prompt_tokens - num_full * block_size + item.num_output_tokens - 1
    # A prompt that ends with a full block computes its last token again: the logits are needed.
    assert scheduler.counters.num_computed_tokens <= len(blocks) * block_size + rest + len(requests) * block_size
    assert scheduler.counters.num_preemptions == 0
