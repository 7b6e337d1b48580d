"""What a script calls: annotate() and submit(). Engine is in generate/engine.py."""

import filecmp
import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel
from rich.console import Console
from tqdm.auto import tqdm

from batchrunner.errors import UsageError
from batchrunner.job_file.read import build_job_file, load_job_file
from batchrunner.output.summary import Summary
from batchrunner.run.progress import Snapshot, choose_progress
from batchrunner.run.submit import run_job_file
from batchrunner.spec.sampling import SamplingParams

Dataset = TypeVar("Dataset")


def submit(job_file: str | Path, overrides: dict[str, Any] | None = None, *, wait: bool = False) -> Summary:
    """Run a job file as `batchrun submit` does, or go on with it.

    overrides maps dotted keys to values: {"engine.block_size": 32}. Raises the errors of batchrunner.errors; failed
    rows are no error, they are counted in the summary.
    """
    return run_job_file(load_job_file(job_file, overrides), choose_progress(Console(stderr=True)), wait=wait)


def annotate(
    dataset: Dataset,
    *,
    model: str | Path,
    prompt: str | dict[str, str] | None = None,
    messages: Sequence[dict[str, str]] | dict[str, str] | None = None,
    sampling: SamplingParams | dict[str, Any] | None = None,
    column: str = "response",
    output: str | Path | None = None,
    engine: dict[str, Any] | None = None,
) -> Dataset:
    """Ask the model about every row and return the rows with the answers, in the same order and the same type.

    dataset: a datasets.Dataset, a list of dicts, a pyarrow.Table or a pandas.DataFrame. prompt and messages are Jinja
    templates over the columns, or {"column": NAME}. The answers come in the column `column`, the bookkeeping (errors
    among it) in `_batchrun`. With output the work is kept in that folder, and a call that was interrupted goes on
    where it stopped; without, it is kept in a temporary folder and gone if the process dies.

    Raises UsageError for another type of dataset, and the errors of batchrunner.errors.
    """
    with tempfile.TemporaryDirectory(prefix="batchrunner-") as scratch:
        target = Path(scratch) / "output" if output is None else Path(output).resolve()
        source = _write_input(dataset, Path(scratch) if output is None else target.parent / f".{target.name}.input")
        job: dict[str, Any] = {"name": "annotate", "input": str(source), "output": str(target), "column": column}
        job |= {"sampling": _sampling(sampling)}
        job |= {key: value for key, value in (("prompt", prompt), ("messages", messages)) if value is not None}
        if isinstance(messages, Sequence):
            job["messages"] = [dict(message) for message in messages]
        document = {"model": str(model), "engine": engine or {}, "jobs": [job]}
        run_job_file(build_job_file(document, {}, base=Path.cwd(), label="annotate()"), TqdmProgress())
        answers = pa.concat_tables([pq.read_table(path) for path in sorted(target.glob("data-*.parquet"))])
        annotated: Dataset = _like(dataset, answers.select([column, "_batchrun"]))
        return annotated


class TqdmProgress:
    """A tqdm bar over the rows."""

    def __init__(self) -> None:
        self._bar: Any = tqdm(unit="row", desc="annotate")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if exception[0] is None and self._bar.total:
            self._bar.update(self._bar.total - self._bar.n)
        self._bar.close()

    def note(self, text: str) -> None:
        self._bar.set_postfix_str(text)

    def reading(self, name: str, num_rows: int) -> None:
        self._bar.set_postfix_str(f"{num_rows} rows read")

    def running(self, snapshot: Snapshot) -> None:
        self._bar.total = snapshot.num_rows
        self._bar.set_postfix_str(f"{snapshot.computed_per_second:.0f} tokens/s, hit rate {snapshot.hit_rate:.0%}")
        self._bar.update(snapshot.num_done - self._bar.n)


def _sampling(sampling: SamplingParams | dict[str, Any] | None) -> dict[str, Any]:
    if isinstance(sampling, BaseModel):
        return sampling.model_dump(mode="json", exclude_unset=True)
    return dict(sampling or {})


def _write_input(dataset: Any, folder: Path) -> Path:
    """Write the rows as an input file. An unchanged file is left alone, so that a finished job stays finished."""
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(dataset, list) and all(isinstance(row, dict) for row in dataset):
        path, new = folder / "input.jsonl", folder / "new.jsonl"
        try:
            new.write_text("".join(json.dumps(row) + "\n" for row in dataset))
        except (TypeError, ValueError) as error:
            raise UsageError(f"annotate(): a row is not JSON: {error}; give a pyarrow.Table for such values") from error
    else:
        path, new = folder / "input.parquet", folder / "new.parquet"
        pq.write_table(_to_table(dataset).replace_schema_metadata(None), new)
    if not path.exists() or not filecmp.cmp(path, new, shallow=False):
        new.replace(path)
    new.unlink(missing_ok=True)
    return path


def _to_table(dataset: Any) -> pa.Table:
    if isinstance(dataset, pa.Table):
        return _with_different_names(dataset.column_names, dataset)
    kind = f"{type(dataset).__module__.partition('.')[0]}.{type(dataset).__name__}"
    if kind == "pandas.DataFrame":
        _with_different_names(map(str, dataset.columns), dataset)  # as pyarrow names them
        return pa.Table.from_pandas(dataset, preserve_index=False)
    if kind == "datasets.Dataset":
        return dataset.with_format("arrow")[:]
    if kind == "datasets.DatasetDict":
        raise UsageError(f"annotate(): a DatasetDict holds several data sets; give one of them: {', '.join(dataset)}")
    raise UsageError(
        f"annotate(): a {kind} is no data set it knows; give a datasets.Dataset, a list of dicts, a pyarrow.Table or a "
        "pandas.DataFrame"
    )


def _with_different_names(names: Iterable[str], dataset: Any) -> Any:
    """The data set. Raises UsageError where two columns have one name: a template could not say which it means."""
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise UsageError(f"annotate(): more than one column is called {repeated[0]!r}; give each a name of its own")
    return dataset


def _like(dataset: Any, answers: pa.Table) -> Any:
    """The answers beside the rows, by position, in the type of the caller's data set."""
    if isinstance(dataset, list):
        return [{**row, **answer} for row, answer in zip(dataset, answers.to_pylist(), strict=True)]
    if isinstance(dataset, pa.Table):
        for name in answers.column_names:
            dataset = dataset.append_column(answers.schema.field(name), answers[name])
        return dataset
    if type(dataset).__name__ == "DataFrame":
        added = answers.to_pandas()
        # Arrays, not series: pandas joins series by the labels of the index, which may be there twice.
        return dataset.assign(**{name: added[name].array for name in answers.column_names})
    import datasets

    return datasets.concatenate_datasets([dataset, datasets.Dataset(answers)], axis=1)
