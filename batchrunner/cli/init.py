"""`batchrun init`: a job file to start from."""

from pathlib import Path

import click

from batchrunner.cli.parts import AS_JSON, print_json


@click.command(short_help="Write a job file and a small input to start from.")
@click.argument("path", type=click.Path(path_type=Path), default=Path("jobs.yaml"))
@AS_JSON
def init(path: Path, as_json: bool) -> int:
    """Write a job file to start from, and a small input, beside each other."""
    from batchrunner.job_file.starter import write_starter

    written = [str(file) for file in write_starter(path)]
    if as_json:
        print_json({"written": written})
        return 0
    click.echo(f"wrote {' and '.join(written)}; next: batchrun validate {path} && batchrun submit {path}")
    return 0
