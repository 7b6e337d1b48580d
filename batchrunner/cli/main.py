"""The command line. Results go to stdout, messages to stderr; exit codes are listed in errors.py."""

import os
import sys
from functools import partial
from pathlib import Path

import click

from batchrunner import __version__
from batchrunner.cli.parts import AS_JSON, JOB_FILE, OVERRIDES, load, print_json, written_to
from batchrunner.cli.plan import plan
from batchrunner.cli.simulate import simulate
from batchrunner.errors import EXIT_CTRL_C, BatchrunError, StorageError, UsageError, described

EXIT_CODES = """\b
Exit codes:
   0  done                             3  done, some rows failed
  64  wrong command line              65  bad input, state or model
  69  device not there                73  output cannot be created
  74  reading or writing failed       75  stopped or locked: run again to go on
  78  bad job file                   130  Ctrl-C: run again to go on
"""


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EXIT_CODES,
)
@click.version_option(__version__, prog_name="batchrun")
def cli() -> None:
    """Run a language model over a table: Parquet or JSONL in, Parquet out, no row lost."""


@cli.command(short_help="Run the jobs of a job file, or go on with them.")
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


@cli.command(short_help="Say how far the jobs are.")
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


@cli.command(short_help="Measure a job file's model on this machine.")
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


@cli.command(short_help="Check a job file and what it names, without a model.")
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


@cli.command(short_help="Write a job file and a small input to start from.")
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


cli.add_command(plan)
cli.add_command(simulate)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def main() -> None:
    """The `batchrun` command: runs a verb and turns every expected error into its message and exit code."""
    wants_json = "--json" in sys.argv
    try:
        exit_code = cli.main(standalone_mode=False) or 0
        sys.stdout.flush()
        sys.exit(exit_code)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(UsageError.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _fail("interrupted; run the same command again (submit goes on where it was)", EXIT_CTRL_C, wants_json)
    except BatchrunError as error:
        _fail(str(error), error.exit_code, wants_json)
    except OSError as error:  # standard output, or what no verb has foreseen
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python would try again at the end
        _fail(described(error, otherwise="reading or writing failed: "), StorageError.exit_code, wants_json=False)


def _fail(message: str, exit_code: int, wants_json: bool) -> None:
    if wants_json:
        print_json({"error": message, "exit_code": exit_code})
    click.echo(f"batchrun: {message}", err=True)
    sys.exit(exit_code)
