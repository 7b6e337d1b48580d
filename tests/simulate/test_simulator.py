"""The simulator: the engine's scheduler on a clock."""

import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from batchrunner.engine.scheduling.predictors.oracle import Oracle
from batchrunner.errors import DeviceError, UsageError
from batchrunner.simulate.cost.device import Device
from batchrunner.simulate.cost.model_shape import ModelShape
from batchrunner.simulate.cost.sizes import Sizes
from batchrunner.simulate.cost.step_costs import FixedSteps
from batchrunner.simulate.load.loads import SimRow, conversations, equal, shared_prefixes, sharegpt_like, tokens
from batchrunner.simulate.picture import draw
from batchrunner.simulate.report import SimReport
from batchrunner.simulate.series import MAX_POINTS, Series
from batchrunner.simulate.simulator import Simulator
from batchrunner.spec.engine import EngineConfig

H100 = Device.load("h100-sxm")
LLAMA = ModelShape.named("llama-3.1-8b")


def run(rows: list[SimRow], device: Device = H100, knows_lengths: bool = False, **options: object) -> SimReport:
    oracle = Oracle({str(index): row.num_output_tokens for index, row in enumerate(rows)})
    simulator = Simulator(EngineConfig.model_validate(options), LLAMA, device)
    return simulator.run(rows, oracle if knows_lengths else None)


def run_fixed(rows: list[SimRow], scheduling_seconds: float = 0.0, **options: object) -> SimReport:
    """A second a step."""
    device = replace(H100, scheduling_seconds=scheduling_seconds)
    return Simulator(EngineConfig.model_validate(options), LLAMA, device, FixedSteps(1.0)).run(rows)


def test_the_same_load_gives_the_same_report() -> None:
    first, second = (run(sharegpt_like(100, seed=3), kv_tokens=8192, policy="mlfq") for _ in range(2))
    assert first.to_dict() == second.to_dict()
    assert first.counters.num_preemptions + first.counters.num_displacements > 0
    assert run(sharegpt_like(100, seed=4), kv_tokens=8192, policy="mlfq").to_dict() != first.to_dict()


def test_every_token_is_given_and_none_more() -> None:
    rows = sharegpt_like(200)
    report = run(rows, kv_tokens=16384)
    assert report.num_rows == 200
    assert report.counters.num_output_tokens == sum(row.num_output_tokens for row in rows)
    assert 0 < report.share_of_limit < 1
    assert report.makespan_seconds == max(report.end_seconds.values())


def test_shortest_jobs_first_wait_least_when_lengths_are_known() -> None:
    rows = sharegpt_like(300)
    reports = {
        policy: run(rows, knows_lengths=True, policy=policy, max_running=32)
        for policy in ("sjf", "fcfs", "prefix", "mlfq", "priority")
    }
    best = reports.pop("sjf")
    for report in reports.values():
        assert best.mean_latency_seconds < 0.8 * report.mean_latency_seconds
    del reports["mlfq"]  # hands every request its first tokens early, and lets it wait for the rest
    for report in reports.values():
        assert best.mean_waiting_seconds < 0.8 * report.mean_waiting_seconds


def test_urgent_rows_end_first() -> None:
    rows = [replace(row, priority=index % 2) for index, row in enumerate(equal(64, 16, 32))]
    ends = run(rows, policy="priority", max_running=8).end_seconds
    assert max(ends[row] for row in range(1, 64, 2)) < min(ends[row] for row in range(0, 64, 2))


@pytest.mark.parametrize("load", [equal(150, 500, 300), sharegpt_like(250)])
@pytest.mark.parametrize(("link", "swaps"), [(50e9, True), (0.1e9, False)])
def test_preemption_auto_is_as_good_as_the_better_of_the_two(load: list[SimRow], link: float, swaps: bool) -> None:
    """A quarter of the memory that 128 requests of the load would like to have."""
    wanted = 128 * sum(len(row.token_ids) + row.num_output_tokens for row in load) // len(load)
    device = replace(H100, link_bytes_per_second=link)
    reports = {
        preemption: run(load, device, preemption=preemption, kv_tokens=wanted // 4, max_running=128)
        for preemption in ("auto", "swap", "recompute")
    }
    auto = reports.pop("auto")
    assert auto.counters.num_preemptions > 0
    assert (auto.counters.num_blocks_from_host > 0) == swaps
    assert auto.makespan_seconds <= 1.05 * min(report.makespan_seconds for report in reports.values())
    assert reports["swap"].counters.num_recomputed_tokens < reports["recompute"].counters.num_recomputed_tokens


def test_rows_come_when_they_come() -> None:
    rows = [replace(row, arrival_seconds=seconds) for row, seconds in zip(equal(3, 8, 4), (0, 1.5, 100), strict=True)]
    report = run_fixed(rows)
    assert report.end_seconds == {0: 4.0, 1: 6.0, 2: 104.0}  # the second is seen when the second step has ended
    assert report.mean_waiting_seconds == pytest.approx((1 + 1.5 + 1) / 3)
    assert report.num_steps == 4 + 2 + 4


def test_a_conversation_goes_on_when_it_was_answered_and_finds_itself_in_the_cache() -> None:
    rows = conversations(num_conversations=2, num_turns=3, num_first=32, num_a_turn=16, num_output=16)
    report = run_fixed(rows)
    assert [report.end_seconds[row] for row in range(6)] == [16, 16, 32, 32, 48, 48]
    assert report.mean_waiting_seconds == 1  # each waits for one step from the end of the turn before
    # The last token of an answer is never computed: 47 of 48 tokens, 79 of 80, of which whole blocks are found.
    assert report.counters.hit_rate == 2 * (32 + 64) / sum(len(row.token_ids) for row in rows)


def test_rows_that_can_never_be_answered_are_counted() -> None:
    rows = [*equal(2, 64, 8), SimRow([], 8, 8, 9), SimRow(tokens(11, 64), 8, 8, 12, follows=1)]
    rows[1] = replace(rows[1], max_tokens=10_000)
    report = run(rows, kv_tokens=1024)
    assert report.refused == {"empty_prompt": 1, "exceeds_kv_memory": 1}
    assert sorted(report.end_seconds) == [0, 3]


def test_between_two_passes_scheduling_costs_nothing() -> None:
    report = run_fixed(equal(4, 8, 20), scheduling_seconds=0.5, schedule_every=5)
    assert report.makespan_seconds == 20 + 4 * 0.5
    assert report.scheduling_share == pytest.approx(2 / 22)


def test_no_load_is_done_in_less_than_the_limit() -> None:
    loads = (
        equal(100, 16, 64),
        equal(100, 1000, 1),
        sharegpt_like(100),
        shared_prefixes(200, 4, 800, 30, 20),
        conversations(10, 5, 200, 30, 30, num_shared=500),
    )
    shares = [run(load).share_of_limit for load in loads]
    assert all(0.1 < share < 0.9 for share in shares), shares
    assert run_fixed(equal(4, 8, 20)).share_of_limit == 1


def test_the_limit_is_the_same_for_all_policies() -> None:
    load = shared_prefixes(200, 4, 800, 30, 20)
    limits = {run(load, policy=policy, kv_tokens=8192).limit_seconds for policy in ("prefix", "fcfs")}
    assert len(limits) == 1


def test_the_pool_is_what_weights_leave() -> None:
    block_bytes = 16 * LLAMA.kv_bytes_per_token
    sizes = Sizes.of(EngineConfig(), LLAMA, H100)
    assert sizes.pool == int(0.9 * 80e9 - LLAMA.weight_bytes) // block_bytes
    assert (sizes.host, sizes.disk) == (4 * sizes.pool, 0)
    tiers = {"host": 2**30, "disk": {"path": "-", "size": 2**31}}
    sizes = Sizes.of(EngineConfig.model_validate({"kv_tokens": 1600, "tiers": tiers}), LLAMA, H100)
    assert sizes == Sizes(100, 2**30 // block_bytes, 2**31 // block_bytes)
    assert Sizes.of(EngineConfig(preemption="recompute"), LLAMA, H100).host == 0
    on_cpu = Sizes.of(EngineConfig(), ModelShape.named("smollm2-135m", "float32"), Device.load("cpu"))
    assert on_cpu.pool == 4 * 2**30 // (16 * 46_080)  # as the engine does: at most 4 GiB
    with pytest.raises(DeviceError, match=r"device l4: weights of 26.0 GB leave nothing of 24.0 GB"):
        Sizes.of(EngineConfig(), ModelShape.named("llama-2-13b"), Device.load("l4"))
    with pytest.raises(DeviceError, match=r"engine.kv_tokens: 1000000 needs .* more than are free"):
        Sizes.of(EngineConfig(kv_tokens=1_000_000), LLAMA, H100)


def test_predictors_that_read_need_text() -> None:
    with pytest.raises(UsageError, match=r"engine.lengths: .* choose history or max_tokens"):
        Simulator(EngineConfig(lengths="signals"), LLAMA, H100)
    simulator = Simulator(EngineConfig(lengths="signals", policy="sjf"), LLAMA, H100, text_of=lambda request: "Why?")
    assert simulator.run(equal(5, 8, 8)).num_rows == 5


def test_the_series_stays_small_and_evenly_spaced() -> None:
    series = Series()
    for step in range(10 * MAX_POINTS):
        if series.is_due():
            series.add(float(step), step, 0.0, 0.0)
    assert MAX_POINTS / 2 < len(series.seconds) <= MAX_POINTS
    gaps = {after - before for before, after in pairwise(series.seconds)}
    assert len(gaps) == 1


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_picture(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"run.{ending}"
    draw({"a": run(sharegpt_like(20)), "b": run(sharegpt_like(20), max_running=2)}, "two runs", path)
    assert path.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml")


def test_any_order_and_arrival_ends() -> None:
    """Small pools, all policies: the scheduler never stalls. test_scheduler_machine.py looks closer."""
    for seed in range(20):
        rng = random.Random(seed)
        rows = [
            replace(row, priority=rng.randrange(3), arrival_seconds=rng.choice([0.0, rng.random()]))
            for row in sharegpt_like(30, max_tokens=100, seed=seed)
        ]
        report = run(
            rows,
            kv_tokens=rng.choice([256, 512, 2048]),
            policy=rng.choice(["prefix", "fcfs", "sjf", "priority", "mlfq"]),
            batching=rng.choice(["continuous", "static"]),
            schedule_every=rng.choice([1, 3, 10]),
            preemption=rng.choice(["auto", "swap", "recompute"]),
            max_running=rng.choice([2, 64]),
        )
        assert report.num_rows == 30
