"""Moves are made whether or not the step that planned them computes something, and whoever runs is served."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from batchrunner.engine.kv.chain import ROOT_KEY, block_keys
from batchrunner.engine.kv.places import Move, Place
from batchrunner.engine.kv.swap_choice import MeasuredCosts
from batchrunner.engine.kv.tiers.disk_file import DiskFile
from batchrunner.engine.kv.tiers.keeping import keep_prefixes
from batchrunner.engine.model.model_files import find_model
from batchrunner.engine.model.model_runner import ModelRunner
from batchrunner.engine.request import Request
from batchrunner.engine.scheduling.quarantine import Quarantine
from batchrunner.engine.scheduling.queues import MAX_PREEMPTIONS
from batchrunner.engine.scheduling.schedule import Schedule
from batchrunner.engine.scheduling.scheduler import Scheduler
from tests.engine.fakes import FakeModelRunner, expected_output
from tests.engine.kv.tiers.disk_blocks import open_file
from tests.engine.scheduling.schedulers import build, request, run_all

DEVICE, HOST = Place.DEVICE, Place.HOST
DOWN_AND_UP = [
    Move(DEVICE, 1, HOST, 0, b"a block", ROOT_KEY),
    Move(HOST, 0, DEVICE, 3, b"a block", ROOT_KEY),
]


def test_the_fake_runner_makes_the_moves_of_a_step_that_computes_nothing() -> None:
    runner = FakeModelRunner(num_blocks=4, block_size=2)
    runner.places[DEVICE][1] = {0: (0, 7)}
    assert runner.run(Schedule(moves=DOWN_AND_UP)) == []
    assert runner.places[HOST][0] == runner.places[DEVICE][3] == {0: (0, 7)}


def test_the_model_runner_makes_the_moves_of_a_step_that_computes_nothing(tiny_llama: Path) -> None:
    runner = ModelRunner(find_model(str(tiny_llama)), torch.device("cpu"), "float32")
    runner.allocate(4, 16, num_host_blocks=1)
    caches = [*runner.store.kv.keys, *runner.store.kv.values]
    for cache in caches:
        cache[1] = torch.rand_like(cache[1])
    assert runner.run(Schedule(moves=DOWN_AND_UP)) == []
    assert all(torch.equal(cache[3], cache[1]) and cache[3].any() for cache in caches)
    runner.close()


@dataclass
class Preempting:
    """Before the step in which first loads two blocks, finds no room for the rest, and has to go itself: limited,
    behind it, may not be preempted any more, and has room promised."""

    scheduler: Scheduler
    runner: FakeModelRunner
    first: Request
    limited: Request


@pytest.fixture
def preempting() -> Preempting:
    seconds_up = {HOST: 0.001}
    scheduler, runner = build(
        num_blocks=12,
        max_running=4,
        max_batch_tokens=10,
        host_blocks=40,
        policy="fcfs",
        eviction="lru",
        costs=MeasuredCosts(4, {HOST: 0.001}, seconds_up, tokens_per_second=40.0),
    )
    prompt = [3 + i % 40 for i in range(33)]
    run_all(scheduler, runner, [request(prompt, 1)])
    run_all(scheduler, runner, [request([45 - i % 40 for i in range(47)], 1)])  # pushes the prompt's blocks down
    first, limited = request([*prompt, 9], 2), request([7, 8], 31)
    limited.num_preemptions = MAX_PREEMPTIONS
    scheduler.add(first)
    scheduler.add(limited)
    seconds_up[HOST] = 5.0  # loading is dearer than computing, for one step
    schedule = scheduler.schedule()
    assert [(item.request, item.num_new_tokens) for item in schedule.scheduled] == [(first, 8), (limited, 2)]
    scheduler.update(schedule, runner.run(schedule))
    seconds_up[HOST] = 0.001
    return Preempting(scheduler, runner, first, limited)


def test_who_preempts_itself_keeps_nobody_behind_it_from_being_served(preempting: Preempting) -> None:
    schedule = preempting.scheduler.schedule()
    assert schedule.preempted == [preempting.first]
    assert [item.request for item in schedule.scheduled] == [preempting.limited]
    assert [move.source for move in schedule.moves if move.target == DEVICE] == [HOST, HOST]


def test_what_was_loaded_for_who_preempted_itself_is_right(preempting: Preempting) -> None:
    run_all(preempting.scheduler, preempting.runner, [])
    for item in (preempting.first, preempting.limited):
        prompt = item.token_ids[: item.num_prompt_tokens]
        assert item.output_token_ids == expected_output(prompt, item.sampling.max_tokens)


def test_when_that_step_fails_what_was_loaded_is_forgotten(preempting: Preempting) -> None:
    schedule = preempting.scheduler.schedule()
    assert len(schedule.new_nodes) == 2
    preempting.scheduler.abandon(schedule)
    preempting.scheduler.check_integrity()
    assert not any(preempting.scheduler.cache.find(node.key) for node in schedule.new_nodes)
    test_what_was_loaded_for_who_preempted_itself_is_right(preempting)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DiskFile]:
    """Nothing is written in it."""
    file = open_file(tmp_path_factory.mktemp("kv"), num_slots=40, keep=False)
    yield file
    file.close()


class Chaos:
    """A scheduler of any shape; requests that share stems arrive and are cancelled, moving is now cheap and now dear,
    and steps fail with nobody knowing which of their moves were made."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        self.block_size = rng.choice([1, 2, 3, 4])
        self.seconds = dict.fromkeys(Place, 0.001)
        num_blocks = -(-rng.randint(30, 80) // self.block_size)
        self.scheduler, self.runner = build(
            num_blocks=num_blocks,
            block_size=self.block_size,
            max_running=rng.randint(2, 6),
            max_batch_tokens=rng.randint(1, 12),
            host_blocks=rng.choice([1, 5, 40]),
            disk_blocks=rng.choice([3, 8, 40]),
            costs=MeasuredCosts(self.block_size, self.seconds, self.seconds, tokens_per_second=10.0 * self.block_size),
            policy=rng.choice(["prefix", "fcfs", "sjf", "priority", "mlfq"]),
            mlfq={"levels": 3, "slice": rng.randint(1, 4), "boost_every": rng.randint(5, 60)},
            schedule_every=rng.choice([1, 1, 2, 5]),
            eviction=rng.choice(["next_use", "lru"]),
        )
        self.quarantine = Quarantine(self.scheduler)
        self.failures = rng.choice([0.0, 0.1])
        self.stems = [self._tokens(rng.randint(1, 40)) for _ in range(3)]
        self.requests: list[Request] = []
        self.cancelled: list[Request] = []
        for _ in range(rng.randint(1, 10)):
            self.add()

    def add(self) -> None:
        prompt = self.rng.choice(self.stems) + self._tokens(self.rng.randint(0, 8))
        item = request(prompt, self.rng.randint(1, 12), priority=self.rng.randint(0, 3))
        item.num_preemptions = self.rng.choice([0, 0, MAX_PREEMPTIONS - 1, MAX_PREEMPTIONS])
        if self.scheduler.pool.num_blocks_for(item.max_kv_tokens) <= self.scheduler.pool.num_blocks:
            self.scheduler.add(item)
            self.requests.append(item)

    def cancel(self) -> None:
        unfinished = [item for item in self.requests if item.finish_reason is None]
        if unfinished:
            self.cancelled.append(self.rng.choice(unfinished))
            self.requests.remove(self.cancelled[-1])
            self.scheduler.cancel(self.cancelled[-1])

    def step(self) -> None:
        self.seconds.update(dict.fromkeys(Place, self.rng.choice([0.001, 5.0])))
        if self.rng.random() < 0.2 and len(self.requests + self.cancelled) < 25:
            self.add()
        if self.rng.random() < 0.03 and not self.failures:
            self.cancel()
        if not self.scheduler.has_unfinished:
            return
        schedule = self.scheduler.schedule()
        assert schedule.scheduled or not self.scheduler.cadence.has_passed
        sampled = self.runner.run(schedule)
        if schedule.scheduled and self.rng.random() < self.failures:
            self.quarantine.failed(schedule, RuntimeError())
        else:
            self.scheduler.update(schedule, sampled)
            self.quarantine.passed(schedule)
        self.scheduler.check_integrity()

    def _tokens(self, num: int) -> list[int]:
        return [self.rng.randint(3, 5) for _ in range(num)]


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**20))
def test_whatever_happens_answers_are_right_and_whole_shared_prefixes_are_kept(file: DiskFile, seed: int) -> None:
    chaos = Chaos(seed)
    num_steps = 0
    while chaos.scheduler.has_unfinished:
        chaos.step()
        num_steps += 1
        assert num_steps < 3000, "the scheduler makes no progress"
    for item in chaos.requests:
        prompt = item.token_ids[: item.num_prompt_tokens]
        assert item.output_token_ids == expected_output(prompt, item.num_output_tokens)
        assert item.finish_reason == "length" or (item.error is not None and chaos.failures)
    tiers = chaos.scheduler.tables.below.tiers
    keep_prefixes(chaos.scheduler.cache, tiers, file)
    kept = {block.key: block for block in tiers[-1].blocks()}
    used = [key for item in chaos.requests + chaos.cancelled for key in block_keys(item, chaos.block_size)]
    assert all(block.parent_key in kept or block.parent_key == ROOT_KEY for block in kept.values())
    assert all(used.count(key) > 1 for key in kept)
