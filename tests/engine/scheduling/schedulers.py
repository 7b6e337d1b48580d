"""Schedulers and requests for tests, with a fake model runner that fits."""

from typing import Any

from hypothesis import strategies as st

from batchrunner import SamplingParams
from batchrunner.engine.kv.places import Place
from batchrunner.engine.kv.swap_choice import MeasuredCosts
from batchrunner.engine.kv.tiers.tier import Tier
from batchrunner.engine.request import Request
from batchrunner.engine.scheduling.build_scheduler import build_foresight, build_scheduler
from batchrunner.engine.scheduling.limits import Limits
from batchrunner.engine.scheduling.predictors.max_tokens import MaxTokens
from batchrunner.engine.scheduling.predictors.predictor import LengthPredictor
from batchrunner.engine.scheduling.schedule import Schedule
from batchrunner.engine.scheduling.scheduler import Scheduler
from batchrunner.spec.engine import EngineConfig
from tests.engine.fakes import FakeModelRunner, expected_output

# Every combination must give the same answers.
configurations = st.fixed_dictionaries(
    {
        "batching": st.sampled_from(["continuous", "continuous", "static"]),
        "policy": st.sampled_from(["prefix", "fcfs", "sjf", "priority", "mlfq"]),
        "ageing": st.sampled_from([0.0, 0.3]),
        "mlfq": st.fixed_dictionaries(
            {"levels": st.integers(3, 5), "slice": st.integers(1, 4), "boost_every": st.integers(5, 60)}
        ),
        "schedule_every": st.sampled_from([1, 1, 2, 5]),
        "predictive_release": st.booleans(),
        "eviction": st.sampled_from(["next_use", "lru"]),
        "preemption": st.sampled_from(["auto", "recompute"]),
        "prefix_caching": st.sampled_from([True, True, False]),
    }
)


def build(
    *,
    num_blocks: int = 64,
    block_size: int = 4,
    max_running: int = 8,
    max_batch_tokens: int = 64,
    host_blocks: int = 0,
    disk_blocks: int = 0,
    predictor: LengthPredictor | None = None,
    costs: MeasuredCosts | None = None,
    **options: Any,
) -> tuple[Scheduler, FakeModelRunner]:
    """options: of EngineConfig."""
    config = EngineConfig(block_size=block_size, **options)
    foresight = build_foresight(config)
    sizes = {Place.HOST: host_blocks, Place.DISK: disk_blocks}
    tiers = [Tier(place, size, foresight) for place, size in sizes.items() if size]
    limits = Limits(max_running, max_batch_tokens)
    scheduler = build_scheduler(
        config, num_blocks, limits, predictor or MaxTokens(), foresight, tiers, costs or MeasuredCosts(block_size)
    )
    return scheduler, FakeModelRunner(num_blocks, block_size)


def request(prompt: list[int], max_tokens: int = 5, name: str = "r", **options: Any) -> Request:
    sampling = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    return Request(name, list(prompt), len(prompt), sampling, **options)


def schedule_of(*spans: tuple[int, int, int]) -> Schedule:
    """(known tokens, start, end) of each request."""
    made = Schedule()
    for known, start, end in spans:
        item = Request("r", [1] * known, known, SamplingParams())
        item.num_computed_tokens = start
        made.add(item, end - start)
    return made


def step(scheduler: Scheduler, runner: FakeModelRunner) -> Schedule:
    schedule = scheduler.schedule()
    assert schedule.scheduled or not scheduler.cadence.has_passed, "a pass with work to do computes something"
    assert schedule.num_tokens <= scheduler.limits.max_batch_tokens
    assert len(scheduler.running) <= scheduler.limits.max_running
    scheduler.update(schedule, runner.run(schedule))
    scheduler.check_integrity()
    return schedule


def run_all(scheduler: Scheduler, runner: FakeModelRunner, requests: list[Request]) -> int:
    """Run to the end; returns the number of steps."""
    for item in requests:
        scheduler.add(item)
    num_steps = 0
    while scheduler.has_unfinished:
        step(scheduler, runner)
        num_steps += 1
        assert num_steps < 100_000, "the scheduler makes no progress"
    for item in requests:
        prompt = item.token_ids[: item.num_prompt_tokens]
        assert item.output_token_ids == expected_output(prompt, item.sampling.max_tokens)
    return num_steps
