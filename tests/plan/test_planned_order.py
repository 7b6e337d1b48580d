"""The planned order of random prefix forests: the optimum where memory is enough, the least of all where it is not."""

import random
from dataclasses import dataclass

import numpy as np
import pytest

from batchrunner.plan.balance import MAX_LOSS
from batchrunner.plan.job_plan import JobPlan, Pace, Room, Rows, plan_job
from batchrunner.plan.prefix_order import order_in_memory
from batchrunner.simulate.cost.device import Device
from batchrunner.simulate.cost.model_shape import ModelShape
from batchrunner.simulate.load.loads import SimRow
from batchrunner.simulate.report import SimReport
from batchrunner.simulate.simulator import Simulator
from batchrunner.spec.engine import EngineConfig
from tests.plan.peer_orders import LongestPrefixSimulator, peer_config

SHAPE, DEVICE = ModelShape.named("llama-3.1-8b"), Device.load("h100-sxm")
NUM_FORESTS = 50
PACE = Pace(token_seconds=1.0, read_seconds=0.02)  # both kinds of work, so that rows are mixed


@dataclass(frozen=True, slots=True)
class Forest:
    """Trees of prefixes of random depth and branching; rows end at their leaves and sometimes inside."""

    rows: list[SimRow]
    num_nodes: int

    @classmethod
    def make(cls, seed: int) -> "Forest":
        rng = random.Random(seed)
        prompts: list[list[int]] = []
        tokens = iter(range(1, 10**9))

        def grow(prefix: list[int], depth: int) -> None:
            stem = [*prefix, *(next(tokens) for _ in range(rng.randint(1, 90)))]
            if depth == 0 or rng.random() < 0.1:
                prompts.append(stem)
            if depth:
                for _ in range(rng.randint(1, 5)):
                    grow(stem, depth - 1)

        for _ in range(rng.randint(2, 12)):
            grow([], rng.randint(1, 4))
        rng.shuffle(prompts)
        prompts = prompts[:200]
        outputs = [rng.choice([1, 4, 16, 80]) for _ in prompts]
        rows = [
            SimRow(prompt, output, output, 2**24 + number, ignore_eos=True)
            for number, (prompt, output) in enumerate(zip(prompts, outputs, strict=True))
        ]
        nodes = {tuple(prompt[:end]) for prompt in prompts for end in range(1, len(prompt) + 1)}
        return cls(rows, len(nodes))

    def plan(self, num_kv_tokens: int) -> JobPlan:
        order = order_in_memory([row.token_ids for row in self.rows])
        limits = np.array([row.max_tokens for row in self.rows], dtype=np.int64)
        num_prompt = np.array([len(row.token_ids) for row in self.rows], dtype=np.int64)
        rows = Rows(num_prompt, limits, np.ones(len(limits), np.bool_), np.zeros(len(limits), np.int64))
        return plan_job(order, rows, "prefix", "", {}, PACE, Room(16, num_kv_tokens))


def num_computed(report: SimReport) -> int:
    """Prompt tokens, with all that was computed again."""
    return report.counters.num_computed_prompt_tokens


@pytest.mark.parametrize("block_size", [1, 16])
def test_with_memory_enough_the_planned_order_computes_each_node_of_the_tree_once(block_size: int) -> None:
    for seed in range(NUM_FORESTS):
        forest = Forest.make(seed)
        config = EngineConfig(block_size=block_size, kv_tokens=400_000, max_running=16)
        plan = forest.plan(config.kv_tokens or 0)
        report = Simulator(config, SHAPE, DEVICE).run(forest.rows, queue=plan.rows.tolist())
        assert num_computed(report) == plan.num_to_compute, f"forest {seed}"
        assert forest.num_nodes <= plan.num_to_compute <= (1 + MAX_LOSS) * forest.num_nodes, f"forest {seed}"
        assert plan.run.num_lost <= MAX_LOSS * forest.num_nodes


def test_with_a_pool_too_small_no_other_order_computes_less() -> None:
    for seed in range(NUM_FORESTS):
        forest = Forest.make(seed)
        needed = max(len(row.token_ids) + row.max_tokens for row in forest.rows)
        pool = {"kv_tokens": max(2 * needed, forest.num_nodes // 8), "max_running": 16}
        plan = forest.plan(pool["kv_tokens"])
        planned = Simulator(EngineConfig.model_validate(pool), SHAPE, DEVICE).run(forest.rows, queue=plan.rows.tolist())
        vllm = Simulator(peer_config(**pool), SHAPE, DEVICE).run(forest.rows)
        sglang = LongestPrefixSimulator(peer_config(**pool), SHAPE, DEVICE).run(forest.rows)
        assert num_computed(planned) <= min(num_computed(vllm), num_computed(sglang)), f"forest {seed}"
        saved = 1 - num_computed(planned) / min(num_computed(vllm), num_computed(sglang))
        slower = planned.makespan_seconds / min(vllm.makespan_seconds, sglang.makespan_seconds)
        print(seed, round(saved, 3), round(slower, 3))
