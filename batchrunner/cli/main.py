"""The command line. Results go to stdout, messages to stderr; exit codes are listed in errors.py."""

import os
import sys

import click

from batchrunner import __version__
from batchrunner.cli.bench import bench
from batchrunner.cli.init import init
from batchrunner.cli.parts import print_json
from batchrunner.cli.plan import plan
from batchrunner.cli.simulate import simulate
from batchrunner.cli.status import status
from batchrunner.cli.submit import submit
from batchrunner.cli.validate import validate
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


for verb in (submit, plan, status, validate, simulate, bench, init):
    cli.add_command(verb)


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
