"""The orders in which other engines run waiting requests, over our own scheduler, pool and cache.

vLLM: in the order of arrival (vllm/v1/core/sched/scheduler.py, policy fcfs). SGLang: at every step those first whose
prompts have the longest beginnings in the cache; in the order of arrival while more than 128 wait (sglang/srt/managers/
schedule_policy.py, policy lpm). Both drop the least recently used block, and compute a preempted request again.
"""

from collections.abc import Sequence
from typing import Any

from batchrunner.engine.kv.swap_choice import MeasuredCosts
from batchrunner.engine.request import Request
from batchrunner.engine.scheduling.policies.policy import Rank, Unchanging
from batchrunner.engine.scheduling.predictors.predictor import LengthPredictor
from batchrunner.engine.scheduling.scheduler import Scheduler
from batchrunner.engine.scheduling.waiting import WaitingQueue
from batchrunner.simulate.cost.sizes import Sizes
from batchrunner.simulate.simulator import Simulator
from batchrunner.spec.engine import EngineConfig

PEER_OPTIONS: dict[str, Any] = {"policy": "fcfs", "eviction": "lru", "preemption": "recompute", "tiers": {"host": 0}}
MAX_RANKED = 128  # waiting requests


class LongestPrefixFirst(Unchanging):
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def rank(self, request: Request) -> Rank:
        scheduler = self._scheduler
        if request in scheduler.running or len(scheduler.waiting) > MAX_RANKED:
            return (0, request.number)
        match = scheduler.tables.match(request, scheduler.pool.num_blocks)
        return (-match.num_tokens(scheduler.pool.block_size), request.number)

    def ran(self, generating: Sequence[Request]) -> Sequence[Request]:
        waiting = list(self._scheduler.waiting)
        return waiting if len(waiting) <= MAX_RANKED else ()


class LongestPrefixSimulator(Simulator):
    def _scheduler(self, sizes: Sizes, measured: MeasuredCosts, predictor: LengthPredictor) -> Scheduler:
        scheduler = super()._scheduler(sizes, measured, predictor)
        scheduler.policy = LongestPrefixFirst(scheduler)
        scheduler.queues.waiting = WaitingQueue(scheduler.policy)
        return scheduler


def peer_config(**options: Any) -> EngineConfig:
    return EngineConfig.model_validate({**PEER_OPTIONS, **options})
