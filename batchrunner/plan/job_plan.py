"""The plan of one job: its rows in the order in which they will run, and what is expected of each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from batchrunner.plan.balance import MAX_LOSS, RowCosts, RunOrder, balance, left_behind_by
from batchrunner.plan.known_whole import num_known_whole
from batchrunner.plan.lengths import ExpectedLengths, expect_lengths
from batchrunner.plan.order import by_priority
from batchrunner.plan.prefix_order import PrefixOrder
from batchrunner.plan.shared_later import num_shared_later

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

SAMPLE_SHARE = 0.01  # of the rows, run first to see how long answers are
MIN_SAMPLED = 200  # rows; of fewer there is nothing left to plan once the first have ended


@dataclass(frozen=True, slots=True)
class Rows:
    """Of every row of a job, [num_rows]; 0 where it cannot be asked. limits: most tokens of the answer; is_fixed: it
    will have as many (ignore_eos)."""

    num_prompt: Ints
    limits: Ints
    is_fixed: Mask
    priorities: Ints

    @classmethod
    def within(cls, context_len: int, num_prompt: Ints, max_tokens: Ints, is_fixed: Mask, priorities: Ints) -> Self:
        """context_len: most tokens of prompt and answer; max_tokens: of the answer."""
        return cls(num_prompt, np.clip(context_len - num_prompt, 0, max_tokens), is_fixed, priorities)


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds of arithmetic for a token, and of reading the KV of one where that runs beside it; 0: it does not."""

    token_seconds: float = 1.0
    read_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Room:
    """max_running: requests at once; num_kv_tokens: of all of them together."""

    max_running: int
    num_kv_tokens: int

    def num_running(self, num_tokens: float) -> int:
        """Rows at once that hold num_tokens each beside what they share."""
        return max(1, min(self.max_running, int(self.num_kv_tokens / max(1.0, num_tokens))))


@dataclass(frozen=True, slots=True)
class JobPlan:
    """order: of the job's wanted rows by prefix. lengths: in that order. run: how they run."""

    order: PrefixOrder
    lengths: ExpectedLengths
    run: RunOrder

    @property
    def rows(self) -> Ints:
        return self.order.rows[self.run.positions]

    @property
    def num_shared_later(self) -> Ints:
        """Of each row in the order of the run: how many of its first tokens a later one begins with, too."""
        return num_shared_later(self.order, self.run.positions)

    @property
    def num_new(self) -> Ints:
        """Prompt tokens to compute of each row, in the order of the run, when memory is enough."""
        return self.order.num_new[self.run.positions]

    @property
    def num_to_compute(self) -> int:
        return self.order.num_tree_tokens + num_known_whole(self.order, self.run.positions)


def plan_job(
    order: PrefixOrder,
    rows: Rows,
    policy: str,
    group: str,
    known: Mapping[str, Sequence[int]],
    pace: Pace,
    room: Room,
) -> JobPlan:
    """policy, group, known: see EngineConfig.policy and expect_lengths."""
    chosen = order.rows
    lengths = expect_lengths(rows.num_prompt[chosen], rows.limits[chosen], rows.is_fixed[chosen], group, known)
    if policy == "priority":
        return JobPlan(order, lengths, RunOrder(by_priority(chosen, rows.priorities[chosen]), 0))
    if policy != "prefix":
        return JobPlan(order, lengths, RunOrder(np.argsort(chosen, kind="stable"), 0))
    num_new, num_prompt, num_output = order.num_new, rows.num_prompt[chosen], lengths.expected
    costs = RowCosts(
        pace.token_seconds * (num_new + num_output),
        pace.read_seconds * num_output * (num_prompt + num_output / 2),
        num_output,
    )
    run = balance(order, costs, room.num_running(float((num_new + num_output).mean())) if len(order) else 1)
    if not lengths.is_known and len(order) >= MIN_SAMPLED:
        run = _sample_first(order, run)
    return JobPlan(order, lengths, run)


def _sample_first(order: PrefixOrder, run: RunOrder) -> RunOrder:
    """A sample from all over the order runs first: of each hundred rows the one that shares least with its neighbours,
    as far as the sharing that is lost stays within the bound."""
    num_rows, num_strata = len(order), int(np.ceil(SAMPLE_SHARE * len(order)))
    costs = left_behind_by(order.num_shared_apart)[run.positions]
    strata = np.array_split(np.arange(num_rows), num_strata)
    sample = np.array([stratum[costs[stratum].argmin()] for stratum in strata])
    cheapest = sample[np.argsort(costs[sample], kind="stable")]
    max_lost = MAX_LOSS * order.num_to_compute - run.num_lost
    num_free = np.searchsorted(np.cumsum(costs[cheapest]), max_lost, side="right")
    chosen = np.sort(cheapest[:num_free])
    is_chosen = np.zeros(num_rows, dtype=np.bool_)
    is_chosen[chosen] = True
    positions = np.append(run.positions[is_chosen], run.positions[~is_chosen])
    return RunOrder(positions, run.num_lost + int(costs[chosen].sum()))
