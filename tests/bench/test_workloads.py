"""What batching and prefix caching save, counted in steps and tokens: no clock, no model."""

from typing import Any

from batchrunner.bench.workloads import Workloads, WorkRow
from batchrunner.engine.counters import Counters
from batchrunner.engine.request import Request
from tests.engine.scheduling.schedulers import build

WORKLOADS = Workloads(vocabulary=40_000, max_tokens=2048)


def run(rows: list[WorkRow], **options: Any) -> Counters:
    num_blocks = 90_000 // 16
    scheduler, runner = build(
        **{"num_blocks": num_blocks, "block_size": 16, "max_running": 128, "max_batch_tokens": 256, **options}
    )
    for row in sorted(rows, key=lambda row: row.token_ids):
        scheduler.add(Request("r", list(row.token_ids), len(row.token_ids), row.sampling))
    while scheduler.has_unfinished:
        schedule = scheduler.schedule()
        runner.num_tokens += schedule.num_tokens
        scheduler.update(schedule, [3] * len(schedule.sampling_requests))
    assert scheduler.counters.num_output_tokens == sum(row.max_tokens for row in rows)
    return scheduler.counters


def test_continuous_batching_takes_less_than_half_the_steps_of_static() -> None:
    rows = WORKLOADS.mixed(128)
    continuous = run(rows, max_running=16)
    static = run(rows, max_running=16, batching="static")
    assert static.num_steps >= 2 * continuous.num_steps
    assert static.num_computed_tokens == continuous.num_computed_tokens


def test_a_shared_instruction_is_computed_once() -> None:
    rows = WORKLOADS.annotate(256)
    cached = run(rows)
    computed_prompt_tokens = cached.num_prompt_tokens - cached.num_cached_tokens
    assert computed_prompt_tokens < 0.25 * cached.num_prompt_tokens
    # What must be computed is the instruction once and each row's own text; blocks cost less than one block a row.
    assert computed_prompt_tokens <= 404 + 256 * (62 + 16)
    assert run(rows, prefix_caching=False).num_cached_tokens == 0
