"""A scheduler as the configuration describes it, for the engine and for the simulator alike."""

from collections.abc import Sequence

from batchrunner.engine.kv.block_pool import BlockPool
from batchrunner.engine.kv.block_tables import BlockTables
from batchrunner.engine.kv.foresight import Foresight, Unknown, WaitingRequests
from batchrunner.engine.kv.prefix_cache import PrefixCache
from batchrunner.engine.kv.swap_choice import AlwaysSwap, CheaperOne, MeasuredCosts, NeverSwap, SwapChoice
from batchrunner.engine.kv.tiers.lower_tiers import LowerTiers
from batchrunner.engine.kv.tiers.tier import Tier
from batchrunner.engine.scheduling.batching import ContinuousBatching, StaticBatching
from batchrunner.engine.scheduling.cadence import Cadence
from batchrunner.engine.scheduling.limits import Limits
from batchrunner.engine.scheduling.policies.fcfs import FirstComeFirstServed
from batchrunner.engine.scheduling.policies.mlfq import FeedbackQueue
from batchrunner.engine.scheduling.policies.policy import Policy
from batchrunner.engine.scheduling.policies.prefix import PlannedOrder
from batchrunner.engine.scheduling.policies.priority import HighestPriority
from batchrunner.engine.scheduling.policies.sjf import ShortestJobFirst
from batchrunner.engine.scheduling.predictors.predictor import LengthPredictor
from batchrunner.engine.scheduling.scheduler import Scheduler
from batchrunner.spec.engine import EngineConfig

# Matrix products of 2 CPU cores gain nothing beyond 256 rows: 409 tokens/s at 256, 192 to 344 at 512 (MKL).
AUTO_MAX_RUNNING = {"cpu": 128, "cuda": 1024}
AUTO_MAX_BATCH_TOKENS = {"cpu": 256, "cuda": 8192}


def build_foresight(config: EngineConfig) -> Foresight:
    """What tiers and prefix cache evict by."""
    if config.eviction == "next_use" and config.prefix_caching:
        return WaitingRequests(config.block_size)
    return Unknown()


def build_scheduler(
    config: EngineConfig,
    num_blocks: int,
    limits: Limits,
    predictor: LengthPredictor,
    foresight: Foresight,
    tiers: Sequence[Tier],
    costs: MeasuredCosts,
) -> Scheduler:
    """tiers: below the device, nearest first, with the same foresight."""
    pool = BlockPool(num_blocks, config.block_size)
    below = LowerTiers(tiers, _swap_choice(config, costs), foresight)
    tables = BlockTables(pool, PrefixCache(pool, foresight), below, prefix_caching=config.prefix_caching)
    batching = StaticBatching() if config.batching == "static" else ContinuousBatching()
    cadence = Cadence(config.schedule_every, config.block_size, predictor if config.predictive_release else None)
    return Scheduler(tables, _policy(config, predictor), batching, limits, foresight, cadence, predictor, costs)


def limits_for(config: EngineConfig, device: str) -> Limits:
    """device: the kind, "cpu" or "cuda"."""
    return Limits(
        AUTO_MAX_RUNNING[device] if config.max_running == "auto" else config.max_running,
        AUTO_MAX_BATCH_TOKENS[device] if config.max_batch_tokens == "auto" else config.max_batch_tokens,
    )


def _policy(config: EngineConfig, predictor: LengthPredictor) -> Policy:
    if config.policy == "sjf":
        return ShortestJobFirst(predictor)
    if config.policy == "priority":
        return HighestPriority(config.ageing)
    if config.policy == "mlfq":
        return FeedbackQueue(config.mlfq.levels, config.mlfq.slice, config.mlfq.boost_every)
    return FirstComeFirstServed() if config.policy == "fcfs" else PlannedOrder()


def _swap_choice(config: EngineConfig, costs: MeasuredCosts) -> SwapChoice:
    if config.preemption == "swap":
        return AlwaysSwap(costs)
    return NeverSwap() if config.preemption == "recompute" else CheaperOne(costs)
