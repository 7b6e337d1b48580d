"""The plan of all jobs of a run: one tree of prefixes, an order for each job, and what it comes to."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from batchrunner.data.spool.spool import Spool
from batchrunner.plan.job_plan import Floats, Ints, JobPlan, Mask, Pace, Room, Rows, plan_job
from batchrunner.plan.known_whole import num_known_whole
from batchrunner.plan.prefix_order import PrefixOrder, order_by_prefix
from batchrunner.spec.engine import EngineConfig


@dataclass(frozen=True, slots=True)
class JobToPlan:
    """wanted: of the spool's rows, [num_rows]. group: of the jobs whose answers are alike. token_ids: the spool's
    prompts of some rows, by whichever of its two ways suits."""

    spool: Spool
    rows: Rows
    wanted: Mask
    group: str
    token_ids: Callable[[Ints], list[list[int]]]


class RunPlan:
    """jobs: one plan for each of asked. num_to_compute: prompt tokens of all jobs together, when memory is enough;
    num_least: in the order of the prefix tree itself."""

    def __init__(
        self, asked: Sequence[JobToPlan], jobs: Sequence[JobPlan], num_to_compute: int, num_least: int
    ) -> None:
        self.asked = asked
        self.jobs = list(jobs)
        self.num_to_compute = num_to_compute
        self.num_least = num_least

    @property
    def num_rows(self) -> int:
        return sum(len(job.order) for job in self.jobs)

    @property
    def num_prompt_tokens(self) -> int:
        return sum(int(job.order.num_tokens.sum()) for job in self.jobs)

    @property
    def num_lost(self) -> int:
        return sum(job.run.num_lost for job in self.jobs)

    @property
    def lengths_are_known(self) -> bool:
        return all(job.lengths.is_known for job in self.jobs)

    @property
    def order(self) -> PrefixOrder:
        """All jobs' rows, job after job, each in the order of its prefixes."""
        orders = [job.order for job in self.jobs]
        return PrefixOrder(
            joined([order.rows for order in orders]),
            joined([order.num_tokens for order in orders]),
            joined([order.num_shared for order in orders]),
        )

    @property
    def expected_output(self) -> Floats:
        """Tokens of the answers, in that order."""
        return np.concatenate([job.lengths.expected for job in self.jobs])


class Planner:
    """Sorts the prompts of all jobs once; plans again as more is known of the lengths."""

    def __init__(self, asked: Sequence[JobToPlan], folder: Path, config: EngineConfig, pace: Pace, room: Room) -> None:
        """folder: for what does not fit in memory. Raises StorageError."""
        self._asked = asked
        self._policy = config.policy
        self._pace = pace
        self._room = room
        self._firsts = np.cumsum([0, *(len(job.wanted) for job in asked)])
        order = order_by_prefix(_batches(asked, self._firsts.tolist()), folder)
        self._order = order if config.prefix_caching else order.unshared()

    def plan(self, known: Mapping[str, Sequence[int]]) -> RunPlan:
        """known: lengths of earlier answers, see expect_lengths."""
        jobs = [self._job_plan(number, self._order_of(number), known) for number in range(len(self._asked))]
        num_to_compute = self._num_to_compute([job.rows for job in jobs])
        num_least = self._num_to_compute([job.order.rows for job in jobs])
        return RunPlan(self._asked, jobs, num_to_compute, num_least)

    def _num_to_compute(self, rows: Sequence[Ints]) -> int:
        """Prompt tokens of all jobs, one after the other; rows: of each, as they run."""
        place_of = np.empty(self._firsts[-1], dtype=np.int64)
        place_of[self._order.rows] = np.arange(len(self._order))
        run = np.concatenate([of_job + first for of_job, first in zip(rows, self._firsts, strict=False)])
        return self._order.num_tree_tokens + num_known_whole(self._order, place_of[run])

    def plan_rest(self, number: int, is_left: Mask, known: Mapping[str, Sequence[int]]) -> JobPlan:
        """Of one job, the rows that are not on their way yet. is_left: of the spool's rows."""
        order = self._order_of(number)
        return self._job_plan(number, order.keep(is_left[order.rows]), known)

    def _job_plan(self, number: int, order: PrefixOrder, known: Mapping[str, Sequence[int]]) -> JobPlan:
        job = self._asked[number]
        return plan_job(order, job.rows, self._policy, job.group, known, self._pace, self._room)

    def _order_of(self, number: int) -> PrefixOrder:
        if len(self._asked) == 1:
            return self._order
        begin, end = self._firsts[number : number + 2]
        part = self._order.keep((self._order.rows >= begin) & (self._order.rows < end))
        return PrefixOrder(part.rows - begin, part.num_tokens, part.num_shared)


def rows_of(spool: Spool, context_len: int) -> Rows:
    """context_len: most tokens of prompt and answer."""
    table = spool.table
    return Rows.within(
        context_len,
        num_prompt=spool.num_tokens.fill_null(0).to_numpy(),
        max_tokens=table["max_tokens"].fill_null(0).to_numpy(),
        is_fixed=table["ignore_eos"].fill_null(False).to_numpy(),
        priorities=table["priority"].fill_null(0).to_numpy(),
    )


def is_hopeless(rows: Rows, block_size: int, num_blocks: int) -> Mask:
    """Of rows that can be asked: whether the context, or the whole pool, has no room for prompt and answer."""
    num_needed = -(-(rows.num_prompt + rows.limits - 1) // block_size)  # the last token's KV is never read
    found: Mask = (rows.num_prompt == 0) | (rows.limits == 0) | (num_needed > num_blocks)
    return found


def _batches(asked: Sequence[JobToPlan], firsts: list[int]) -> Iterator[pa.RecordBatch]:
    """The prompts of all wanted rows, numbered through all jobs."""
    for job, first in zip(asked, firsts, strict=False):
        for batch in job.spool.prompt_batches():
            rows = batch.column("row").to_numpy()
            wanted = pa.array(job.wanted[rows])
            arrays = [pa.array(rows + first).filter(wanted), batch.column("prompt").filter(wanted)]
            yield pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def joined(parts: Sequence[Ints]) -> Ints:
    """One after the other; there may be none."""
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
