"""Prompts that begin alike as neighbours, and how much each has in common with the one before it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from batchrunner.plan.prefix_order import order_in_memory
from batchrunner.simulate.load.loads import SimRow


@dataclass(frozen=True, slots=True)
class PromptOrder:
    """by_prefix: rows in the depth-first order of their prefix tree. num_shared, by row: how many tokens its prompt
    begins with that the prompts before it in this order begin with, too; the sum over the rest is the tree's size."""

    by_prefix: list[int]
    num_shared: list[int]

    @classmethod
    def of(cls, rows: Sequence[SimRow]) -> "PromptOrder":
        order = order_in_memory([row.token_ids for row in rows])
        num_shared = np.zeros(len(rows), dtype=np.int64)
        num_shared[order.rows] = order.num_shared
        return cls(order.rows.tolist(), num_shared.tolist())
