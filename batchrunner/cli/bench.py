"""`batchrun bench`: a job file's model on this machine, measured."""

import sys
from functools import partial
from pathlib import Path

import click

from batchrunner.cli.parts import AS_JSON, JOB_FILE, OVERRIDES, load, print_json, written_to


@click.command(short_help="Measure a job file's model on this machine.")
@JOB_FILE
@OVERRIDES
@click.option("--output", type=click.Path(path_type=Path), default=Path("bench"), show_default=True, help="Folder.")
@click.option("--rows", type=click.IntRange(min=2), default=64, show_default=True, help="Rows of each workload.")
@click.option("--max-batch", type=click.IntRange(1, 4096), default=256, show_default=True, help="Largest of the curve.")
@AS_JSON
def bench(job_file: Path, overrides: tuple[str, ...], output: Path, rows: int, max_batch: int, as_json: bool) -> int:
    """Measure the model of JOB_FILE on this machine, with its engine options, over rows made up for it.

    How fast a step is for 1, 2, 4 … requests and how fast the matrix products alone; continuous against static
    batching; prefix groups against each request alone; policy prefix against fcfs. Minutes. Writes bench.json and
    bench.png.
    """
    from rich.console import Console

    from batchrunner.bench.bench import run_bench, write_bench
    from batchrunner.bench.table import tables

    loaded = load(job_file, overrides)
    with written_to(f"--output {output}"):
        output.mkdir(parents=True, exist_ok=True)  # before the work, not after it
    result = run_bench(loaded.model, loaded.engine, rows, max_batch, on_progress=partial(click.echo, err=True))
    with written_to(f"--output {output}"):
        write_bench(result, output)
    if as_json:
        print_json(result.to_dict())
        return 0
    console = Console(width=None if sys.stdout.isatty() else 120)
    for table in tables(result):
        console.print(table)
    click.echo(f"{output / 'bench.json'}, {output / 'bench.png'}", err=True)
    return 0
