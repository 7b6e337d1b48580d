"""The Engine of the Python API: it plans the prompts that it is given at once."""

from collections.abc import Sequence

import numpy as np

from batchrunner.engine.engine import Engine as EngineCore
from batchrunner.plan.job_plan import Pace, Room, Rows, plan_job
from batchrunner.plan.prefix_order import order_in_memory
from batchrunner.spec import SamplingParams


class Engine(EngineCore):
    __doc__ = EngineCore.__doc__

    def in_order(self, prompts: Sequence[Sequence[int]], sampling: Sequence[SamplingParams]) -> Sequence[int]:
        """As a job's rows: by prefix, and long answers not last."""
        if self.config.policy != "prefix":
            return super().in_order(prompts, sampling)
        rows = Rows.within(
            self.context_len,
            num_prompt=np.array([len(prompt) for prompt in prompts], dtype=np.int64),
            max_tokens=np.array([params.max_tokens for params in sampling], dtype=np.int64),
            is_fixed=np.ones(len(prompts), dtype=np.bool_),  # nothing better is known of them
            priorities=np.zeros(len(prompts), dtype=np.int64),
        )
        room = Room(self.scheduler.limits.max_running, self.budget.num_kv_tokens)
        order = order_in_memory(prompts) if self.config.prefix_caching else order_in_memory(prompts).unshared()
        plan = plan_job(order, rows, "prefix", "", {}, Pace(), room)
        found: list[int] = plan.rows.tolist()
        return found
