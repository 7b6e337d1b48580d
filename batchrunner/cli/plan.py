"""`batchrun plan`: what a job file asks for, what it will take here, and what would change that."""

import sys
import time
from pathlib import Path

import click

from batchrunner.cli.parts import AS_JSON, JOB_FILE, OVERRIDES, load, print_json, written_to
from batchrunner.errors import UsageError

PROGRESS_SECONDS = 10.0


@click.command(short_help="Say what a job file asks for, and what it will take.")
@JOB_FILE
@OVERRIDES
@click.option("--page", type=click.Path(path_type=Path), help="Write the plan as a page with pictures, an .html file.")
@click.option(
    "--shards",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Say what each of so many machines would get.",
)
@AS_JSON
def plan(job_file: Path, overrides: tuple[str, ...], page: Path | None, shards: int, as_json: bool) -> int:
    """Read and tokenise the rows of JOB_FILE and say, before a weight is loaded: which rows will fail, how many tokens
    are to compute and which beginnings they share, what memory and time it will take here, and what would change if."""
    import pyarrow as pa

    from batchrunner.preview.planning import plan_job_file

    pa.set_memory_pool(pa.system_memory_pool())  # Arrow's own keeps what is freed: 60 MB more for 2 million rows
    if page is not None and page.suffix != ".html":
        raise UsageError(f"--page {page}: the name should end in .html")
    loaded = load(job_file, overrides)
    if page is not None:
        with written_to(f"--page {page}"):
            page.parent.resolve(strict=True)  # before the work, not after it
    found = plan_job_file(loaded, _RowsRead(), shards)
    if page is not None:
        from batchrunner.preview.page import render_page

        with written_to(f"--page {page}"):
            scratch = page.with_name(f".{page.name}.tmp")
            scratch.write_text(render_page(found, str(job_file)), encoding="utf-8")
            scratch.replace(page)
    if as_json:
        print_json(found.to_dict())
        return 0
    from rich.console import Console

    from batchrunner.preview.table import describe

    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    for part in describe(found):
        console.print(part)
        console.print()
    if page is not None:
        click.echo(str(page), err=True)
    return 0


class _RowsRead:
    """Says every few seconds how many rows of a job were read."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, name: str, count: int) -> None:
        if time.monotonic() - self._last > PROGRESS_SECONDS:
            self._last = time.monotonic()
            click.echo(f"{name}: {count:,} rows read", err=True)
