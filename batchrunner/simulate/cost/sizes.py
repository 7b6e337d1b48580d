"""How many blocks a simulated machine has for KV, and what moving one of them costs."""

from dataclasses import dataclass
from typing import Self

from batchrunner.engine.kv.memory import MAX_BLOCKS_FOR_TIER, num_kv_blocks
from batchrunner.engine.kv.places import Place
from batchrunner.engine.kv.swap_choice import MeasuredCosts
from batchrunner.engine.request import Request
from batchrunner.engine.scheduling.limits import Limits
from batchrunner.engine.scheduling.schedule import Schedule
from batchrunner.errors import DeviceError
from batchrunner.simulate.cost.device import Device
from batchrunner.simulate.cost.model_shape import ModelShape
from batchrunner.simulate.cost.step_costs import StepCosts
from batchrunner.spec.engine import EngineConfig
from batchrunner.spec.sampling import SamplingParams

USABLE_SHARE = 0.9  # of a GPU's memory, for weights and KV; the rest is for activations and for the driver
MAX_AUTO_HOST_BYTES = 256 * 2**30


@dataclass(frozen=True, slots=True)
class Sizes:
    """In blocks."""

    pool: int
    host: int
    disk: int

    @classmethod
    def of(cls, config: EngineConfig, shape: ModelShape, device: Device) -> Self:
        """Raises DeviceError if not even one block fits beside the weights."""
        block_bytes = shape.kv_bytes_per_token * config.block_size
        pool = _pool(config, shape, device)
        host = 0
        if config.preemption != "recompute" and config.prefix_caching:
            auto = min(MAX_BLOCKS_FOR_TIER * pool, MAX_AUTO_HOST_BYTES // block_bytes)
            host = auto if config.tiers.host == "auto" else config.tiers.host // block_bytes
        disk = config.tiers.disk.size // block_bytes if config.tiers.disk else 0
        return cls(pool, host, disk)

    def at_most(self, num_blocks: int) -> Self:
        """For a load that can fill no more than so many: blocks beyond them change nothing and cost memory here."""
        return type(self)(min(self.pool, num_blocks), min(self.host, num_blocks), min(self.disk, num_blocks))


def device_kind(device: Device) -> str:
    """Whose defaults the engine would take: "cpu" for a machine of that name, "cuda" for all others."""
    return "cpu" if device.name == "cpu" else "cuda"


def measured_costs(block_size: int, costs: StepCosts, limits: Limits) -> MeasuredCosts:
    """What the engine would have measured: of moves at its start, of prefill in a full step."""
    below = (Place.HOST, Place.DISK)
    return MeasuredCosts(
        block_size,
        seconds_down={place: costs.block_seconds(Place.DEVICE, place) for place in below},
        seconds_up={place: costs.block_seconds(place, Place.DEVICE) for place in below},
        tokens_per_second=limits.max_batch_tokens / prefill_seconds(costs, limits.max_batch_tokens),
    )


def prefill_seconds(costs: StepCosts, num_tokens: int) -> float:
    """Of a step that computes one prompt."""
    schedule = Schedule()
    schedule.add(Request("", [0] * num_tokens, num_tokens, SamplingParams()), num_tokens)
    return costs.step(schedule).seconds


def _pool(config: EngineConfig, shape: ModelShape, device: Device) -> int:
    if config.has_fixed_pool or device_kind(device) == "cpu":
        free = int(device.memory_bytes) - shape.weight_bytes
        return num_kv_blocks(config, shape.kv_bytes_per_token, "cpu", free)  # refuses more than there is
    free = int(device.memory_bytes * USABLE_SHARE) - shape.weight_bytes
    num_blocks = free // (shape.kv_bytes_per_token * config.block_size)
    if num_blocks < 1:
        raise DeviceError(
            f"device {device.name}: weights of {shape.weight_bytes / 1e9:,.1f} GB leave nothing of "
            f"{device.memory_bytes / 1e9:,.1f} GB for KV; simulate a larger device or a smaller model"
        )
    return num_blocks
