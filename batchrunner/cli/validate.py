"""`batchrun validate`: a job file and what it names, checked without a model."""

from pathlib import Path

import click

from batchrunner.cli.parts import AS_JSON, JOB_FILE, OVERRIDES, load, print_json


@click.command(short_help="Check a job file and what it names, without a model.")
@JOB_FILE
@OVERRIDES
@AS_JSON
def validate(job_file: Path, overrides: tuple[str, ...], as_json: bool) -> int:
    """Check JOB_FILE and what it names, without loading a model."""
    from batchrunner.job_file.validate import check_job_file

    loaded = load(job_file, overrides)
    found = check_job_file(loaded)
    if as_json:
        print_json({"valid": True, "jobs": found})
        return 0
    for job in found:
        inputs = f"{_count(job['num_files'], 'input file')}, {_count(job['num_bytes'], 'byte')}"
        click.echo(f"{job['name']}: valid, {inputs} → {job['output']}")
    return 0


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
