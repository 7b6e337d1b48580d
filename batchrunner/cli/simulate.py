"""`batchrun simulate`: what a job would take on a machine that need not be there."""

import sys
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchrunner.cli.parts import AS_JSON, OVERRIDES, print_json
from batchrunner.errors import OutputError, UsageError

if TYPE_CHECKING:
    from batchrunner.simulate.comparison import Comparison, Variant
    from batchrunner.simulate.cost.device import Device
    from batchrunner.simulate.cost.model_shape import ModelShape
    from batchrunner.simulate.load.job_rows import JobRows
    from batchrunner.spec.job import JobFile

LOAD_MODEL = "llama-3.1-8b"  # of made-up loads
LOAD = {"model": "-", "engine": {}, "jobs": [{"name": "load", "input": "-", "output": "-", "prompt": "-"}]}
ORACLE = ("engine.lengths", "oracle")  # no predictor of the engine's
ENDINGS = (".png", ".svg")
SAME_FOR_ALL = ("engine.device", "engine.dtype", "engine.quantization")  # the model and the machine are made once


@click.command(short_help="Predict what a job takes, on any machine.")
@click.argument("job_file", type=click.Path(path_type=Path), required=False)
@click.option("--device", default="h100-sxm", show_default=True, help="h100-sxm, h200, a100-80g, l4, cpu, or a .yaml.")
@click.option("--model", help="A config.json, or a known model as llama-3.1-8b.  [default: the job's]")
@click.option("--load", metavar="NAME:ROWS", help="Made-up rows in place of a job's, as in sharegpt:1000.")
@click.option("--lengths", metavar="LENGTHS", help="Of the answers: max, fixed:N, sharegpt, run:OUTPUT, a file …")
@click.option("--rows", type=click.IntRange(min=1), help="Only the first so many rows of each job.")
@click.option("--compare", multiple=True, metavar="KEY=A,B,…", help="Values of an engine option; may be repeated.")
@OVERRIDES
@click.option("--picture", type=click.Path(path_type=Path), help="Draw the runs over time: a .png or .svg.")
@AS_JSON
def simulate(
    job_file: Path | None,
    device: str,
    model: str | None,
    load: str | None,
    lengths: str | None,
    rows: int | None,
    compare: tuple[str, ...],
    overrides: tuple[str, ...],
    picture: Path | None,
    as_json: bool,
) -> int:
    """Run the rows of JOB_FILE through the engine's scheduler, over a cost model of a machine in place of the model.

    \b
    batchrun simulate jobs.yaml --device a100-80g --compare policy=fcfs,sjf,mlfq,prefix
    batchrun simulate --load sharegpt:1000 --compare batching=continuous,static

    How long the answers are, nobody knows beforehand: as in the job's finished run if there is one, else the longest
    allowed, unless --lengths says otherwise. --compare lengths=history,oracle tells the scheduler, too.
    """
    from batchrunner.job_file.overrides import parse_override
    from batchrunner.simulate.comparison import compare as compare_variants
    from batchrunner.simulate.cost.device import Device

    _check_options(job_file, load, lengths, rows, picture)
    machine = Device.load(device)
    values = dict(map(parse_override, overrides))
    base = _job_file(job_file, values)
    variants = [_variant(job_file, values, chosen) for chosen in _combinations(compare)]
    shape = _shape(model, None if load else base, machine, base.engine.dtype)
    found = _rows(base, load, lengths, rows, shape.max_position)
    _say(found, base)
    title = f"{load or job_file}: {len(found.rows):,} rows on {machine.name}"
    result = compare_variants(variants, found.rows, shape, machine, title, found.text_of, partial(click.echo, err=True))
    if picture is not None:
        _draw(result, picture)
    _print(result, as_json)
    return 0


def _check_options(
    job_file: Path | None, load: str | None, lengths: str | None, rows: int | None, picture: Path | None
) -> None:
    if (job_file is None) == (load is None):
        raise UsageError("simulate: give either a job file or --load NAME:ROWS")
    if load is not None and (lengths is not None or rows is not None):
        option = "--lengths" if lengths is not None else "--rows"
        raise UsageError(f"{option}: the rows of --load {load} are as many and as long as it says; leave {option} out")
    if picture is not None and picture.suffix not in ENDINGS:
        raise UsageError(f"--picture {picture}: the name should end in {' or '.join(ENDINGS)}")


def _job_file(path: Path | None, values: dict[str, Any]) -> "JobFile":
    """The job file with these values in place of its own; None: an empty one, whose engine is the default one."""
    from batchrunner.job_file.read import build_job_file, load_job_file

    if path is not None:
        return load_job_file(path, values)
    for key in values:
        if not key.startswith("engine."):
            raise UsageError(f"-o {key}: there is no job file; only values of engine. can be given with --load")
    return build_job_file(LOAD, values, Path(), "--load")


def _combinations(compare: tuple[str, ...]) -> list[dict[str, Any]]:
    """Every value of every option with every one of the others, by dotted key."""
    from batchrunner.job_file.overrides import parse_override

    options = []
    for text in compare:
        key, _, values = text.partition("=")
        if not key or not all(values.split(",")):
            raise UsageError(f"--compare {text}: write KEY=A,B with values of an engine option, as in policy=fcfs,sjf")
        key = key if key.startswith("engine.") else f"engine.{key}"
        if key in SAME_FOR_ALL:
            raise UsageError(f"--compare {text}: all have the same {key}; simulate twice, with --device or -o {key}=…")
        options.append([parse_override(f"{key}={value}") for value in values.split(",")])
    return [dict(chosen) for chosen in product(*options)]


def _variant(path: Path | None, values: dict[str, Any], chosen: dict[str, Any]) -> "Variant":
    from batchrunner.simulate.comparison import Variant

    key, oracle = ORACLE
    knows_lengths = chosen.get(key) == oracle
    told = {name: value for name, value in chosen.items() if (name, value) != ORACLE}
    config = _job_file(path, values | told).engine
    label = ", ".join(f"{name.removeprefix('engine.')}={value}" for name, value in chosen.items())
    return Variant(label or f"policy={config.policy}", config, knows_lengths)


def _shape(name: str | None, job_file: "JobFile | None", device: "Device", dtype: str) -> "ModelShape":
    """name: as given; None: the job's own, or for made-up rows LOAD_MODEL."""
    from batchrunner.simulate.cost.model_shape import ModelShape
    from batchrunner.simulate.cost.sizes import device_kind
    from batchrunner.simulate.load.job_rows import model_folder

    if dtype == "auto" and device_kind(device) == "cpu":
        dtype = "float32"  # as the engine does
    if name is None and job_file is not None:
        return ModelShape.from_config(model_folder(job_file.model), dtype)
    name = name or LOAD_MODEL
    return ModelShape.from_config(name, dtype) if Path(name).exists() else ModelShape.named(name, dtype)


def _rows(job_file: "JobFile", load: str | None, lengths: str | None, num_rows: int | None, context: int) -> "JobRows":
    from batchrunner.simulate.load.job_rows import JobRows, read_job_rows
    from batchrunner.simulate.load.lengths import Lengths
    from batchrunner.simulate.load.named_loads import named_load

    if load is not None:
        return JobRows(named_load(load))
    return read_job_rows(job_file, None if lengths is None else Lengths.parse(lengths), num_rows, context)


def _say(found: "JobRows", job_file: "JobFile") -> None:
    if found.num_failed or found.num_equal:
        click.echo(f"{found.num_failed:,} rows cannot be asked, {found.num_equal:,} ask what others ask", err=True)
    if job_file.engine.quantization:
        click.echo("quantization is not simulated: weights count as float32", err=True)


def _draw(result: "Comparison", path: Path) -> None:
    from batchrunner.simulate.picture import draw

    try:
        draw(result.reports, result.title, path)
    except OSError as error:
        raise OutputError(f"--picture {path}: cannot be written: {error.strerror}") from error


def _print(result: "Comparison", as_json: bool) -> None:
    from rich.console import Console

    from batchrunner.simulate.table import table

    if as_json:
        print_json(result.to_dict())
        return
    Console(width=None if sys.stdout.isatty() else 120).print(table(result.reports, result.title))
    click.echo(f"{result.pool}\n{result.swap}")
    for label, report in result.reports.items():
        for kind, count in report.refused.items():
            click.echo(f"{label}: {count:,} rows can never be answered: {kind}", err=True)
