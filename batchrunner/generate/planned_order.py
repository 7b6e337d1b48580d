"""In which order prompts that are there at once are asked."""

from collections.abc import Sequence

import numpy as np

from batchrunner.engine.engine import EngineCore
from batchrunner.plan.job_plan import Pace, Room, Rows, plan_job
from batchrunner.plan.prefix_order import order_in_memory
from batchrunner.spec.sampling import SamplingParams


def planned_order(
    engine: EngineCore, prompts: Sequence[Sequence[int]], sampling: Sequence[SamplingParams]
) -> Sequence[int]:
    """The indexes of prompts as a job's rows would run: by prefix if the policy says so, and long answers not last."""
    if engine.config.policy != "prefix":
        return range(len(prompts))
    rows = Rows.within(
        engine.context_len,
        num_prompt=np.array([len(prompt) for prompt in prompts], dtype=np.int64),
        max_tokens=np.array([params.max_tokens for params in sampling], dtype=np.int64),
        is_fixed=np.ones(len(prompts), dtype=np.bool_),  # nothing better is known of them
        priorities=np.zeros(len(prompts), dtype=np.int64),
    )
    room = Room(engine.scheduler.limits.max_running, engine.budget.num_kv_tokens)
    order = order_in_memory(prompts) if engine.config.prefix_caching else order_in_memory(prompts).unshared()
    plan = plan_job(order, rows, "prefix", "", {}, Pace(), room)
    found: list[int] = plan.rows.tolist()
    return found
