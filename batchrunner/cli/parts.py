"""What several verbs of the command line share."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchrunner.errors import OutputError

if TYPE_CHECKING:
    from batchrunner.spec.job import JobFile

JOB_FILE = click.argument("job_file", type=click.Path(path_type=Path))
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
OVERRIDES = click.option(
    "-o",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a value, as in -o engine.block_size=32; may be repeated.",
)


def load(path: Path, overrides: tuple[str, ...]) -> "JobFile":
    from batchrunner.job_file.overrides import parse_override
    from batchrunner.job_file.read import load_job_file

    return load_job_file(path, dict(map(parse_override, overrides)))


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))


@contextmanager
def written_to(option: str) -> Iterator[None]:
    """option: as the user wrote it, with its path."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"{option}: cannot be written: {error}") from error
