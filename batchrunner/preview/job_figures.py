"""From the plan of one job to the figures that people read."""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow.compute as pc

from batchrunner.data.spool.spool import Spool
from batchrunner.engine.kv.memory import Budget
from batchrunner.plan.job_plan import JobPlan
from batchrunner.plan.prefix_tree import top_prefixes
from batchrunner.plan.run_plan import JobToPlan, is_hopeless
from batchrunner.preview.figures import JobFigures, SharedPrefix
from batchrunner.preview.histogram import Histogram
from batchrunner.spec.job import JobSpec

NUM_PREFIXES = 10
Decode = Callable[[Sequence[int]], str]


def job_figures(
    job: JobSpec, asked: JobToPlan, plan: JobPlan, num_requests: int, decode: Decode, budget: Budget
) -> JobFigures:
    """num_requests: distinct ones. decode: token ids to text."""
    spool, rows = asked.spool, asked.rows
    is_asked = spool.table["error_type"].is_null().to_numpy(zero_copy_only=False)
    is_too_long = is_asked & (rows.limits == 0)
    is_too_large = is_asked & ~is_too_long & is_hopeless(rows, budget.block_size, budget.num_blocks)
    counted = pc.value_counts(spool.table["error_type"].drop_null()).to_pylist()
    return JobFigures(
        name=job.name,
        num_rows=len(spool),
        num_failed=len(spool) - int(is_asked.sum()),
        errors={item["values"]: item["counts"] for item in counted},
        num_requests=num_requests,
        num_duplicates=int(is_asked.sum()) - num_requests,
        num_prompt_tokens=int(plan.order.num_tokens.sum()),
        num_answer_tokens=int(rows.limits[plan.order.rows].sum()),
        num_expected_answer_tokens=round(float(plan.lengths.expected.sum())),
        lengths_from=plan.lengths.source,
        num_too_long=int(is_too_long.sum()),
        num_too_large=int(is_too_large.sum()),
        num_tokens_to_compute=plan.num_to_compute,
        num_tokens_given=int(rows.num_prompt[is_asked].sum()),
        prompts=Histogram.of(plan.order.num_tokens),
        answers=Histogram.of(np.rint(plan.lengths.expected).astype(np.int64)),
        prefixes=_prefixes(plan, spool, decode),
    )


def _prefixes(plan: JobPlan, spool: Spool, decode: Decode) -> list[SharedPrefix]:
    subtrees = top_prefixes(plan.order, NUM_PREFIXES)
    prompts = spool.token_ids(plan.order.rows[[subtree.first for subtree in subtrees]])
    return [
        SharedPrefix.of(subtree.num_rows, subtree.depth, subtree.num_saved, decode(prompt[: subtree.depth]))
        for subtree, prompt in zip(subtrees, prompts, strict=True)
    ]
