"""Scheduler, pool, cache and tiers under everything hypothesis can think of, over a real model and real memory."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from batchrunner.engine.kv.swap_choice import MeasuredCosts
from batchrunner.engine.kv.tiers.disk_file import DiskFile
from batchrunner.engine.kv.tiers.disk_layout import Layout
from batchrunner.engine.model.model_files import find_model
from batchrunner.engine.model.model_runner import ModelRunner
from batchrunner.engine.request import Request
from batchrunner.engine.scheduling.scheduler import Scheduler
from tests.engine.scheduling.schedulers import build, configurations, request
from tests.models import build_tiny_model

MAX_NEW = 10
tokens = st.integers(3, 6)  # few different ones, so that prompts share beginnings by chance


@dataclass(frozen=True)
class Arrival:
    """One comes before each step. cancel_after: output tokens after which it is cancelled, 0 for never."""

    prompt: list[int]
    max_tokens: int
    priority: int
    cancel_after: int


arrivals = st.builds(
    Arrival,
    prompt=st.lists(tokens, min_size=1, max_size=24),
    max_tokens=st.integers(1, MAX_NEW),
    priority=st.integers(0, 3),
    cancel_after=st.sampled_from([0, 0, 0, 1, 3]),
)


@cache
def model_runner() -> ModelRunner:
    with TemporaryDirectory() as folder:
        build_tiny_model("llama", Path(folder))
        return ModelRunner(find_model(folder), torch.device("cpu"), "float32")


@cache
def undisturbed(prompt: tuple[int, ...]) -> list[int]:
    """What the model answers when nobody else is there and memory is plenty."""
    scheduler, _ = build(num_blocks=16, block_size=16)
    runner = model_runner()
    runner.allocate(16, 16)
    item = request(list(prompt), MAX_NEW)
    scheduler.add(item)
    while scheduler.has_unfinished:
        schedule = scheduler.schedule()
        scheduler.update(schedule, runner.run(schedule))
    return item.output_token_ids


def run(scheduler: Scheduler, runner: ModelRunner, coming: list[Arrival]) -> dict[Request, Arrival]:
    """Add one before each step, cancel where it is due; integrity holds after every change."""
    coming, added = list(coming), {}
    while coming or scheduler.has_unfinished:
        if coming:
            arrival = coming.pop(0)
            item = request(arrival.prompt, arrival.max_tokens, priority=arrival.priority)
            added[item] = arrival
            scheduler.add(item)
        schedule = scheduler.schedule()
        scheduler.update(schedule, runner.run(schedule))
        for item in (*scheduler.running, *scheduler.waiting):
            if item.finish_reason is None and item.num_output_tokens == added[item].cancel_after > 0:
                scheduler.cancel(item)
        scheduler.check_integrity()
    return added


@settings(max_examples=80, deadline=None)
@given(
    coming=st.lists(arrivals, min_size=1, max_size=14),
    block_size=st.sampled_from([1, 3, 4, 16]),
    pool_tokens=st.integers(40, 120),
    max_running=st.integers(1, 6),
    max_batch_tokens=st.integers(1, 40),
    options=configurations,
    host_blocks=st.sampled_from([0, 1, 5, 40]),
    disk_blocks=st.sampled_from([0, 3, 40]),
    swap=st.booleans(),
)
def test_every_answer_is_that_of_an_undisturbed_run(
    coming: list[Arrival],
    block_size: int,
    pool_tokens: int,
    max_running: int,
    max_batch_tokens: int,
    options: dict[str, Any],
    host_blocks: int,
    disk_blocks: int,
    swap: bool,
) -> None:
    expected = [undisturbed(tuple(arrival.prompt)) for arrival in coming]  # before the pool of this run is made
    if swap and host_blocks and options["prefix_caching"]:
        options = {**options, "preemption": "swap"}
    num_blocks, costs, runner = -(-pool_tokens // block_size), MeasuredCosts(block_size), model_runner()
    scheduler, _ = build(
        num_blocks=num_blocks,
        block_size=block_size,
        max_running=max_running,
        max_batch_tokens=max_batch_tokens,
        host_blocks=host_blocks,
        disk_blocks=disk_blocks,
        costs=costs,
        **options,
    )
    block_bytes = runner.kv_bytes_per_token * block_size
    with TemporaryDirectory() as folder:
        size = Layout(disk_blocks, block_bytes).num_bytes
        disk = DiskFile.open(Path(folder), size, block_bytes, "test", keep=False) if disk_blocks else None
        runner.allocate(num_blocks, block_size, costs, host_blocks, disk)
        added = run(scheduler, runner, coming)
        runner.store.close()
    for (item, arrival), answer in zip(added.items(), expected, strict=True):
        assert item.output_token_ids == answer[: item.num_output_tokens]
        is_cancelled = item.finish_reason is None
        assert item.num_output_tokens == (arrival.cancel_after if is_cancelled else arrival.max_tokens)
    assert scheduler.tables.num_available == num_blocks, "a block leaked"
