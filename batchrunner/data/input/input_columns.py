"""Which columns of the input pass through to the output, and whether the columns that a job names are there."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from batchrunner.data.input.columns import JsonColumns, check_values, input_tables, parquet_schema
from batchrunner.data.input.rows import Row
from batchrunner.data.input.sources import InputFile, find_inputs
from batchrunner.errors import DataError
from batchrunner.spec.job import JobSpec
from batchrunner.spec.types import ColumnRef


@dataclass(frozen=True, slots=True)
class FileStamp:
    """What a file looked like when its rows were about to be read."""

    num_bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class InputColumns:
    """The files of a job and the columns that pass through."""

    files: tuple[InputFile, ...]
    stamps: tuple[FileStamp, ...]
    schema: pa.Schema
    json_names: frozenset[str]

    def tables(self) -> Iterator[pa.Table]:
        """All input rows in order. Raises DataError if they cannot be read as before."""
        return input_tables(self.files, self.schema, self.json_names)

    def check_unchanged(self) -> None:
        """Raises DataError if a file is not what it was before it was read."""
        for file, stamp in zip(self.files, self.stamps, strict=True):
            if _stamp_of(file) != stamp:
                raise DataError(f"{file.path}: the file has changed while the job ran; run the job again")


class ColumnFinder:
    """Finds the InputColumns of a job while its rows are read."""

    def __init__(self, job: JobSpec) -> None:
        """Raises DataError for files that are missing, contradict each other or collide with the output."""
        self._job = job
        for index, name in enumerate(job.columns or ()):
            if name in (job.columns or ())[:index]:
                raise DataError(f"{job.name}: columns: {name!r} is there twice; name it once")
        self.files = tuple(find_inputs(job.inputs))
        self._stamps = tuple(_stamp_of(file) for file in self.files)
        self._parquet_files = [file for file in self.files if file.format == "parquet"]
        self._parquet = parquet_schema(self._parquet_files, job.columns)
        self._json = JsonColumns()
        self._check_collisions(self._parquet.names)
        if len(self._parquet_files) == len(self.files):
            self._check_named_columns(self._parquet.names)

    def see(self, file: InputFile, rows: Sequence[Row]) -> None:
        if file.format == "jsonl":
            self._json.see(rows)

    def found(self) -> InputColumns:
        """All rows were seen. Raises DataError where a column is nowhere, or Parquet and JSONL files do not fit."""
        columns = InputColumns(self.files, self._stamps, self._chosen(self._merged()), self._json.json_names)
        columns.check_unchanged()
        return columns

    def _merged(self) -> pa.Schema:
        if len(self._parquet_files) == len(self.files):
            return self._parquet
        try:
            schema = self._json.merge_into(self._parquet, self._job.columns)
            if any(schema.field(field.name).type != field.type for field in self._parquet):
                check_values(self._parquet_files, schema, self._job.columns)
        except DataError as error:
            message = f"{self._job.name}: the columns of the Parquet and the JSONL files differ: {error}"
            raise DataError(message) from error
        self._check_collisions(schema.names)
        if self._json.num_rows or self._parquet_files:  # an empty JSONL file alone tells nothing of its columns
            self._check_named_columns(schema.names)
        return schema

    def _chosen(self, schema: pa.Schema) -> pa.Schema:
        """The columns that are kept; null throughout where an empty JSONL file does not tell of them."""
        if self._job.columns is None:
            return schema
        names = set(schema.names)
        return pa.schema([schema.field(n) if n in names else pa.field(n, pa.null()) for n in self._job.columns])

    def _check_named_columns(self, names: Sequence[str]) -> None:
        for name in self._job.columns or ():
            if name not in names:
                raise DataError(f"{self._job.name}: columns: the input has no {name!r}; it has {', '.join(names)}")
        named = {f"sampling.{parameter}": name for parameter, name in self._job.sampling.columns().items()}
        if isinstance(self._job.priority, ColumnRef):
            named["priority"] = self._job.priority.column
        for index, name in enumerate(self._job.fields or ()):
            named[f"fields[{index}]"] = name
        if self._job.fields is not None and "fields" in names:
            raise DataError(
                f"{self._job.name}: the input has a column 'fields', and with fields: the template means all of those; "
                "rename the column"
            )
        for key, name in named.items():
            if name not in names:
                message = f"{key}: the input has no column {name!r}; it has {', '.join(names)}"
                raise DataError(f"{self._job.name}: {message}")

    def _check_collisions(self, names: Sequence[str]) -> None:
        job = self._job
        kept = names if job.columns is None else job.columns
        if job.column in kept:
            remedy = "name the answer otherwise (column:)"
            raise DataError(f"{job.name}: the input has a column {job.column!r} already; {remedy}")
        if "_batchrun" in kept:
            raise DataError(f"{job.name}: the input has a column '_batchrun' already; choose what to keep (columns:)")


def _stamp_of(file: InputFile) -> FileStamp:
    try:
        status = file.path.stat()
    except OSError as error:
        raise DataError(f"{file.path}: not readable: {error.strerror}") from error
    return FileStamp(status.st_size, status.st_mtime_ns)
