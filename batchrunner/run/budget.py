"""What memory there is for a run, and what it is enough for."""

from batchrunner.engine.kv.memory import Budget
from batchrunner.run.job_run import JobRun


def describe_budget(budget: Budget, jobs: list[JobRun]) -> str:
    """One line, with how many of the jobs' rows fit at once."""
    num_rows = sum(job.num_asked for job in jobs)
    mean_tokens = sum(job.mean_tokens * job.num_asked for job in jobs) / max(1, num_rows)
    return (
        f"{budget}: {budget.num_rows_at_once(mean_tokens):,} rows at once of up to {mean_tokens:,.0f} tokens each on "
        "average"
    )
