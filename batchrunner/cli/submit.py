"""`batchrun submit`: run the jobs of a job file, or go on with them."""

from pathlib import Path

import click

from batchrunner.cli.parts import AS_JSON, JOB_FILE, OVERRIDES, load, print_json


@click.command(short_help="Run the jobs of a job file, or go on with them.")
@JOB_FILE
@OVERRIDES
@click.option("--wait", is_flag=True, help="Wait if another run works on the same output.")
@AS_JSON
def submit(job_file: Path, overrides: tuple[str, ...], wait: bool, as_json: bool) -> int:
    """Run the jobs of JOB_FILE, or go on with them after an interruption."""
    from rich.console import Console

    from batchrunner.run.progress import choose_progress
    from batchrunner.run.submit import run_job_file

    loaded = load(job_file, overrides)
    summary = run_job_file(loaded, choose_progress(Console(stderr=True)), wait=wait)
    if as_json:
        print_json(summary.to_dict())
        return summary.exit_code
    for job in summary.jobs:
        answered = f"{job.num_answered:,} of {job.num_rows:,} rows answered, {job.num_failed:,} failed"
        click.echo(f"{job.name}: {answered} → {job.output}")
        for kind, count in job.errors.items():
            click.echo(f"  {count:,} × {kind}, the first: {job.example_errors[kind]}")
    if (run := summary.run).num_steps:
        forecast = f" ({run.forecast_seconds:,.1f} s were forecast)" if run.forecast_seconds else ""
        click.echo(
            f"{run.seconds:,.1f} s{forecast}: {run.num_computed_tokens:,} tokens computed, "
            f"{run.num_cached_tokens:,} of {run.num_prompt_tokens:,} prompt tokens from the prefix cache, "
            f"{run.num_output_tokens:,} generated"
        )
        click.echo(f"memory: {run.about_memory}")
    return summary.exit_code
