"""What a step costs at measured speeds, and the speeds that steps tell."""

import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchrunner.engine.kv.places import Move, Place
from batchrunner.engine.model.speeds import Speeds
from batchrunner.engine.model.step_times import StepTime
from batchrunner.engine.request import Request
from batchrunner.engine.scheduling.schedule import Schedule
from batchrunner.engine.scheduling.step_work import StepWork
from batchrunner.simulate.cost.least_work import LeastWork
from batchrunner.simulate.cost.measured_steps import MeasuredSteps
from batchrunner.simulate.cost.model_shape import ModelShape
from batchrunner.simulate.cost.speed_fit import fit
from batchrunner.spec.sampling import SamplingParams

SHAPE = ModelShape.named("smollm2-135m", "float32")
SPEEDS = Speeds(2e11, 2e10)
WEIGHT_SECONDS = SHAPE.weight_bytes / 2e10
KV_SECONDS = SHAPE.kv_bytes_per_token / 2e10
TOKEN_SECONDS = 2 * (SHAPE.num_parameters - SHAPE.num_output_parameters) / 2e11
SAMPLE_SECONDS = 2 * SHAPE.num_output_parameters / 2e11
PAIR_SECONDS = 4 * SHAPE.num_heads * SHAPE.head_dim * SHAPE.num_layers / 2e11


def decode(num_requests: int, context: int = 40) -> StepWork:
    return StepWork(num_requests, num_requests, num_requests * context, num_requests * context)


def chunk(num_tokens: int) -> StepWork:
    return StepWork(num_tokens, 0, num_tokens * (num_tokens + 1) // 2, num_tokens)


def seconds_of(work: StepWork, speeds: Speeds = SPEEDS) -> float:
    return MeasuredSteps(SHAPE, speeds, 16).num_seconds(work, work.num_context)


def timed(works: Sequence[StepWork], speeds: Speeds = SPEEDS) -> list[StepTime]:
    return [StepTime(work, work.num_context, seconds_of(work, speeds)) for work in works]


def test_the_arithmetic_of_few_tokens_is_hidden_behind_the_weights() -> None:
    for num_requests in (1, 4):
        num_kv = num_requests * 41
        assert seconds_of(decode(num_requests)) == pytest.approx(WEIGHT_SECONDS + num_kv * KV_SECONDS)


def test_that_of_many_tokens_comes_on_top() -> None:
    computing = 64 * (TOKEN_SECONDS + SAMPLE_SECONDS + 40 * PAIR_SECONDS)
    expected = 0.7 * WEIGHT_SECONDS + computing + 64 * 41 * KV_SECONDS
    assert seconds_of(decode(64)) == pytest.approx(expected)
    assert seconds_of(decode(64), Speeds(2e11, 2e10, 0.5)) == pytest.approx(expected + 0.5)


@given(st.integers(1, 300), st.integers(1, 300), st.integers(0, 2000))
def test_more_work_takes_longer(num_requests: int, more: int, num_read: int) -> None:
    costs = MeasuredSteps(SHAPE, SPEEDS, 16)
    assert costs.num_seconds(decode(num_requests), num_read) < costs.num_seconds(decode(num_requests + more), num_read)
    assert costs.num_seconds(decode(num_requests), num_read) < costs.num_seconds(decode(num_requests), num_read + more)


def test_a_step_of_the_scheduler() -> None:
    costs = MeasuredSteps(SHAPE, Speeds(2e11, 2e10, 0.5), 16)
    schedule = Schedule(moves=[Move(Place.HOST, 0, Place.DEVICE, 1, b"", b"")])
    request = Request("r", [1] * 100, 100, SamplingParams())
    request.num_computed_tokens = 99
    schedule.add(request, 1)
    work = StepWork(1, 1, 100, 100)
    block_seconds = 2 * 16 * KV_SECONDS
    assert costs.block_seconds(Place.HOST, Place.DEVICE) == pytest.approx(block_seconds)
    assert costs.step(schedule).transfer_seconds == pytest.approx(block_seconds)
    assert costs.step(schedule).seconds == pytest.approx(costs.num_seconds(work, 100) + block_seconds)
    assert costs.step(schedule, 30).seconds == pytest.approx(costs.num_seconds(work, 30) + block_seconds)
    assert costs.step(schedule, 300) == costs.step(schedule)


@given(st.lists(st.integers(1, 200), min_size=1, max_size=20))
def test_no_steps_take_less_than_the_least(sizes: list[int]) -> None:
    works = [decode(size) for size in sizes]
    least = LeastWork(
        num_steps=len(works),
        num_tokens=sum(work.num_tokens for work in works),
        num_samples=sum(work.num_samples for work in works),
        num_attended=sum(work.num_attended for work in works),
        num_context=sum(work.num_context for work in works),
    )
    assert MeasuredSteps(SHAPE, SPEEDS, 16).least_seconds(least) <= sum(map(seconds_of, works)) * (1 + 1e-9)


MIXED = [decode(size) for size in (1, 1, 2, 2, 4, 8, 16, 32, 64)] + [chunk(256)] * 4


@settings(max_examples=30, deadline=None)
@given(st.floats(0.1, 10), st.floats(0.4, 2.5))
def test_steps_of_all_kinds_tell_both_speeds(scale: float, ratio: float) -> None:
    truth = Speeds(scale * ratio * 2e11, scale * 2e10)
    found = fit(SHAPE, timed(MIXED, truth), SPEEDS)
    for work in MIXED:
        assert seconds_of(work, found) == pytest.approx(seconds_of(work, truth), rel=0.15)


def test_what_was_known_and_is_right_stays() -> None:
    for known in (SPEEDS, Speeds(2e11, 2e10, 0.004)):
        found = fit(SHAPE, timed(MIXED, known), known)
        assert found.flops_per_second == pytest.approx(known.flops_per_second, rel=0.01)
        assert found.bytes_per_second == pytest.approx(known.bytes_per_second, rel=0.01)
        assert found.overhead_seconds == pytest.approx(known.overhead_seconds, abs=1e-4)
    assert fit(SHAPE, [], SPEEDS) is SPEEDS


@pytest.mark.parametrize("works", [[chunk(256)] * 9, [decode(1)] * 9], ids=["large", "small"])
def test_steps_of_one_kind_leave_the_ratio_as_it_was_known(works: list[StepWork]) -> None:
    found = fit(SHAPE, timed(works, Speeds(1e11, 1e10)), SPEEDS)
    assert found.flops_per_second == pytest.approx(1e11, rel=0.02)
    assert found.bytes_per_second == pytest.approx(1e10, rel=0.02)


def test_a_minority_of_steps_that_had_to_wait_changes_little() -> None:
    rng = random.Random(0)
    steps = [
        StepTime(step.work, step.num_read, step.seconds * (10 if rng.random() < 0.25 else rng.uniform(0.97, 1.03)))
        for step in timed(MIXED * 20)
    ]
    found = fit(SHAPE, steps, Speeds(1e11, 3e10))
    for work in (decode(1), decode(32), decode(128), chunk(256)):
        assert seconds_of(work, found) == pytest.approx(seconds_of(work), rel=0.1)


def test_a_model_so_small_that_steps_are_all_overhead() -> None:
    truth = Speeds(2e13, 2e12, 0.01)
    found = fit(SHAPE, timed(MIXED, truth), Speeds(2e13, 2e12))
    assert found.overhead_seconds == pytest.approx(0.01, rel=0.1)
    assert math.isclose(seconds_of(chunk(256), found), seconds_of(chunk(256), truth), rel_tol=0.1)
