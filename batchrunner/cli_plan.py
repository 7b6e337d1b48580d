"""`batchrun plan`: what a job file asks for and what memory there is for it, before anything is computed."""

import time
from pathlib import Path

import click

from batchrunner.cli_parts import AS_JSON, JOB_FILE, OVERRIDES, load, print_json

PROGRESS_SECONDS = 10.0


@click.command(short_help="Say what a job file asks for, and what memory there is.")
@JOB_FILE
@OVERRIDES
@AS_JSON
def plan(job_file: Path, overrides: tuple[str, ...], as_json: bool) -> int:
    """Read and tokenise the rows of JOB_FILE and say what they ask for: requests, tokens, rows that will fail; and what
    memory there is for them here and now: weights, activations, KV blocks, rows at once. No weights are loaded."""
    from batchrunner.planning import plan_job_file

    last = time.monotonic()

    def on_rows(name: str, count: int) -> None:
        nonlocal last
        if time.monotonic() - last > PROGRESS_SECONDS:
            last = time.monotonic()
            click.echo(f"{name}: {count:,} rows read", err=True)

    found = plan_job_file(load(job_file, overrides), on_rows)
    if as_json:
        print_json(found.to_dict())
        return 0
    for job in found.jobs:
        click.echo(
            f"{job.name}: {job.num_rows:,} rows, {job.num_requests:,} distinct requests; {job.num_prompt_tokens:,} "
            f"prompt tokens, answers of at most {job.num_answer_tokens:,}; {job.mean_tokens:,.0f} tokens a row"
        )
        for kind, count in job.errors.items():
            click.echo(f"  {count:,} rows cannot be asked: {kind}")
        if job.num_too_long:
            click.echo(f"  {job.num_too_long:,} rows will fail: the prompt leaves no room in the model's context")
        if job.num_too_large:
            click.echo(f"  {job.num_too_large:,} rows will fail: the whole KV pool does not hold prompt and answer")
    click.echo(f"{found.budget}")
    enough = "that is enough for them" if found.peak_share <= 1 else "the others wait for memory"
    click.echo(
        f"{found.num_rows_at_once:,} average rows fit at once if they share nothing and their answers are as long as "
        f"they may be; up to {found.max_running:,} run at once: {enough}"
    )
    return 0
