"""`batchrun status`: how far the jobs are."""

from pathlib import Path

import click

from batchrunner.cli.parts import AS_JSON, OVERRIDES, load, print_json
from batchrunner.errors import UsageError


@click.command(short_help="Say how far the jobs are.")
@click.argument("target", type=click.Path(path_type=Path))
@OVERRIDES
@AS_JSON
def status(target: Path, overrides: tuple[str, ...], as_json: bool) -> int:
    """Say how far the jobs of TARGET (a job file or an output folder) are."""
    from batchrunner.output.status import job_status

    if target.is_dir():
        if overrides:
            raise UsageError(f"-o: {target} is a folder; overrides are for a job file")
        found = [job_status(target)]
    else:
        found = [job_status(Path(job.output), job.name) for job in load(target, overrides).jobs]
    if as_json:
        print_json({"jobs": found})
        return 0
    for job in found:
        rows = ""
        if "num_rows" in job:
            rows = f", {job['num_done']:,} of {job['num_rows']:,} rows, {job['num_failed']:,} failed"
        holder = f" ({job['holder']})" if "holder" in job else ""
        click.echo(f"{job['name']}: {job['state']}{holder}{rows} → {job['output']}")
    return 0
