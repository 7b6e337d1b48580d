"""What a step costs, by hand on a device of round numbers, and whether real devices come out as published."""

from dataclasses import replace

import pytest

from batchrunner.engine.kv.places import Move, Place
from batchrunner.engine.scheduling.schedule import Schedule
from batchrunner.simulate.cost.device import Device
from batchrunner.simulate.cost.model_shape import ModelShape
from batchrunner.simulate.cost.roofline import Roofline
from tests.engine.scheduling.schedulers import schedule_of as schedule

# 1,000 parameters of layers and 80 of the output (tied); attention 4 · 2 · 4 · 3 = 96 FLOP a token of context.
MODEL = ModelShape(
    num_layers=3,
    hidden=8,
    num_heads=2,
    num_kv_heads=1,
    head_dim=4,
    vocabulary=10,
    max_position=100,
    num_parameters=1080,
    num_active_parameters=1080,
    num_embedding_parameters=0,
    dtype_bytes=2,
    widest=32,
)
KV_BYTES = 2 * 3 * 1 * 4 * 2
DEVICE = Device(
    name="round",
    flops=1e3,
    bytes_per_second=1e3,
    memory_bytes=1e6,
    link_bytes_per_second=100,
    disk_bytes_per_second=10,
    flops_efficiency=0.5,
    bytes_efficiency=0.25,
    step_overhead_seconds=7,
    scheduling_seconds=1,
)


def moves(num_blocks: int, source: Place, target: Place) -> Schedule:
    return Schedule(moves=[Move(source, slot, target, slot, b"", b"") for slot in range(num_blocks)])


def test_decodes() -> None:
    roofline = Roofline(MODEL, DEVICE, block_size=4)
    cost = roofline.step(schedule((6, 5, 6), (9, 8, 9)))
    flops = 2 * (2000 + 160) + 96 * (6 + 9)
    num_bytes = 2160 + KV_BYTES * (6 + 9 + 2)
    assert cost.compute_seconds == pytest.approx(flops / 500)
    assert cost.memory_seconds == pytest.approx(num_bytes / 250)
    assert cost.overhead_seconds == 7
    assert cost.seconds == max(cost.compute_seconds, cost.memory_seconds) + 7


def test_a_chunk_attends_token_by_token_and_its_context_is_read_once() -> None:
    roofline = Roofline(MODEL, DEVICE, block_size=4)
    cost = roofline.step(schedule((20, 3, 7), (6, 5, 6)))  # the chunk samples nothing
    flops = 5 * 2000 + 160 + 96 * ((4 + 5 + 6 + 7) + 6)
    assert cost.compute_seconds == pytest.approx(flops / 500)
    assert cost.memory_seconds == pytest.approx((2160 + KV_BYTES * (7 + 6 + 5)) / 250)


def test_shared_prefixes_can_be_read_once() -> None:
    roofline = Roofline(MODEL, DEVICE, block_size=4)
    step = schedule((10, 9, 10), (11, 10, 11))
    for item, table in zip(step.scheduled, ([1, 2, 3], [1, 2, 4]), strict=True):
        item.request.block_table = table
    assert roofline.num_distinct_tokens(step) == 8 + 2 + 3
    alone, shared = roofline.step(step), roofline.step(step, roofline.num_distinct_tokens(step))
    assert alone.memory_seconds - shared.memory_seconds == pytest.approx(KV_BYTES * 8 / 250)
    assert alone.compute_seconds == shared.compute_seconds
    assert roofline.step(step, 1000) == alone  # a bound looser than each request's own context changes nothing


def test_moves_take_the_time_of_the_slowest_part_of_their_way() -> None:
    roofline = Roofline(MODEL, DEVICE, block_size=4)
    block = 4 * KV_BYTES
    for source, target, seconds in (
        (Place.DEVICE, Place.HOST, block / 100),
        (Place.HOST, Place.DEVICE, block / 100),
        (Place.HOST, Place.DISK, block / 10),
        (Place.DISK, Place.DEVICE, block / 10),
        (Place.DEVICE, Place.DEVICE, 2 * block / 250),
    ):
        assert roofline.step(moves(3, source, target)).transfer_seconds == pytest.approx(3 * seconds)


def test_with_experts_few_tokens_read_few_weights() -> None:
    roofline = Roofline(replace(MODEL, num_parameters=5080), DEVICE, block_size=4)
    for num_tokens, num_read in ((1, 1080), (2, 2160), (5, 5080)):
        cost = roofline.step(schedule((50, 0, num_tokens)))
        assert cost.memory_seconds == pytest.approx((2 * num_read + KV_BYTES * 2 * num_tokens) / 250)


def test_totals_and_the_lower_bound() -> None:
    roofline = Roofline(MODEL, DEVICE, block_size=4)
    costs = [roofline.step(schedule((6, 0, 6))), roofline.step(schedule((7, 6, 7)))]
    totals = roofline.totals
    assert (totals.num_steps, totals.num_tokens, totals.num_samples) == (2, 7, 2)
    assert totals.flops == 7 * 2000 + 2 * 160 + 96 * (1 + 2 + 3 + 4 + 5 + 6 + 7)
    assert totals.kv_bytes == KV_BYTES * (6 + 6 + 7 + 1)
    assert totals.seconds == pytest.approx(sum(cost.seconds for cost in costs))
    assert roofline.lower_bound_seconds(totals) == pytest.approx(totals.flops / 1000)
    assert roofline.lower_bound_seconds(totals, num_steps=50) == pytest.approx((totals.kv_bytes + 50 * 2160) / 1000)


def test_swapping_two_thousand_tokens_against_computing_them_again() -> None:
    """About 1 GB of KV, 20 to 40 ms over PCIe 5 or 4, and half a second of recomputation: a 7B model on an L4."""
    device = Device.load("l4")
    roofline = Roofline(ModelShape.named("llama-2-7b"), device, block_size=16)
    step = moves(2000 // 16, Place.HOST, Place.DEVICE)
    assert 2000 * ModelShape.named("llama-2-7b").kv_bytes_per_token == pytest.approx(1.05e9, rel=0.01)
    assert roofline.step(schedule((2000, 0, 2000))).compute_seconds == pytest.approx(0.5, rel=0.15)
    assert roofline.step(step).transfer_seconds == pytest.approx(0.042, rel=0.01)
    faster = replace(device, link_bytes_per_second=Device.load("h100-sxm").link_bytes_per_second)
    roofline = Roofline(ModelShape.named("llama-2-7b"), faster, block_size=16)
    assert roofline.step(step).transfer_seconds == pytest.approx(0.021, rel=0.01)


@pytest.mark.parametrize(
    ("model", "device", "num_context"),
    [("llama-2-7b", "a100-80g", 500), ("llama-2-13b", "a100-80g", 500), ("llama-3.1-8b", "h100-sxm", 2000)],
)
def test_a_batch_of_32_has_twenty_times_the_throughput_of_one(model: str, device: str, num_context: int) -> None:
    roofline = Roofline(ModelShape.named(model), Device.load(device), block_size=16)
    one, many = (
        roofline.step(schedule(*[(num_context, num_context - 1, num_context)] * size)).seconds for size in (1, 32)
    )
    assert 1.4 < many / one < 1.6
    assert 20 < 32 * one / many < 23
