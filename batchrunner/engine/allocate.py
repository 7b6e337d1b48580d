"""From the configuration to memory: the KV pool of a loaded model, and the tiers below it."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from batchrunner.engine.kv.foresight import Foresight
from batchrunner.engine.kv.memory import Budget, budget_for
from batchrunner.engine.kv.places import Place
from batchrunner.engine.kv.swap_choice import MeasuredCosts
from batchrunner.engine.kv.tiers.disk_file import DiskFile
from batchrunner.engine.kv.tiers.keeping import disk_tier
from batchrunner.engine.kv.tiers.tier import Tier
from batchrunner.engine.model.model_runner import ModelRunner
from batchrunner.engine.scheduling.build_scheduler import build_foresight
from batchrunner.engine.scheduling.limits import Limits
from batchrunner.spec.engine import EngineConfig


@dataclass(frozen=True, slots=True)
class Memory:
    budget: Budget
    limits: Limits
    foresight: Foresight
    tiers: list[Tier]
    disk: DiskFile | None
    costs: MeasuredCosts


def allocate_memory(config: EngineConfig, runner: ModelRunner, limits: Limits, identity: str) -> Memory:
    """Give the runner its KV cache. identity: of whatever kept KV must agree with.

    Raises DeviceError for memory that is not there, StorageError for a disk tier that cannot be made.
    """
    budget = budget_for(
        config,
        runner.device.type,
        runner.free_bytes,
        runner.kv_bytes_per_token,
        runner.weight_bytes,
        runner.activation_bytes(limits),
    )
    num_host = budget.num_host_blocks
    costs = MeasuredCosts(config.block_size)
    foresight = build_foresight(config)
    tiers = [Tier(Place.HOST, num_host, foresight)] if num_host else []
    disk = None
    with ExitStack() as on_error:
        if config.tiers.disk is not None:
            spec = config.tiers.disk
            disk = DiskFile.open(Path(spec.path), spec.size, budget.block_bytes, identity, keep=spec.keep)
            on_error.callback(disk.close)
            tiers.append(disk_tier(disk, foresight))
        runner.allocate(budget.num_blocks, config.block_size, costs, num_host, disk)
        if config.has_fixed_pool:
            runner.store.reserve()
        runner.store.measure()
        on_error.pop_all()
    return Memory(budget, limits, foresight, tiers, disk, costs)
