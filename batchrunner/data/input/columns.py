"""The types of the input columns, so that every column can be passed through as it came.

Parquet files bring their schema. For JSONL the types are found over all rows before any is written: a column that is
null for the first million rows, or whose objects differ, is no trouble. What no Arrow type holds exactly (text here,
a number there) is kept as JSON text.
"""

import json
from collections.abc import Iterator, Sequence

import pyarrow as pa

from batchrunner.data.input.column_types import merge_types, nullable
from batchrunner.data.input.json_types import JsonKind
from batchrunner.data.input.rows import Row, open_parquet, parquet_tables, read_rows
from batchrunner.data.input.sources import InputFile
from batchrunner.errors import DataError

JSON_TEXT = pa.string()
MAX_COLUMNS = 10_000  # rows whose keys are data, a new one in every row, would need memory without end


class JsonColumns:
    """Finds the types of JSONL columns as rows go by."""

    def __init__(self) -> None:
        self.num_rows = 0  # without those that could not be read
        self._kinds: dict[str, JsonKind] = {}

    def see(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.num_rows += row.error is None
            for name, value in row.values.items():
                if name not in self._kinds:
                    self._add(name, row)
                self._kinds[name].see(value)

    def _add(self, name: str, row: Row) -> None:
        if len(self._kinds) == MAX_COLUMNS:
            raise DataError(f"{row.place}: over {MAX_COLUMNS:,} different keys so far; put them into one object")
        self._kinds[name] = JsonKind()

    def schema(self) -> pa.Schema:
        types = {name: kind.arrow_type() for name, kind in self._kinds.items()}
        return pa.schema([(name, JSON_TEXT if kind is None else kind) for name, kind in types.items()])

    @property
    def json_names(self) -> frozenset[str]:
        """Columns kept as JSON text."""
        return frozenset(name for name, kind in self._kinds.items() if kind.arrow_type() is None)

    def merge_into(self, parquet: pa.Schema, kept: Sequence[str] | None) -> pa.Schema:
        """One schema for the Parquet and the JSONL files. Raises DataError where they contradict each other."""
        merged = {field.name: field.type for field in parquet}
        json_names = self.json_names
        for field in self.schema():
            name, before = field.name, merged.get(field.name, pa.null())
            found = merge_types(before, field.type)
            is_text_in_both = name in json_names and not pa.types.is_null(before)
            is_changed = found is not None and found != field.type and self._kinds[name].has_large_integer
            if found is None or is_text_in_both or is_changed:
                if kept is None or name in kept:
                    raise DataError(f"{name!r} is {before} in Parquet, and in JSONL {_described(field, json_names)}")
                found = before
            merged[name] = found
        return pa.schema(list(merged.items()))


def _described(field: pa.Field, json_names: frozenset[str]) -> str:
    return "of mixed kinds" if field.name in json_names else str(field.type)


def json_table(rows: Sequence[Row], schema: pa.Schema, json_names: frozenset[str]) -> pa.Table:
    """The rows with the schema found by JsonColumns; an unreadable row is null in every column."""
    arrays = []
    for column in schema:
        values = [row.values.get(column.name) for row in rows]
        if column.name in json_names:
            values = [None if value is None else json.dumps(value, ensure_ascii=False) for value in values]
        try:
            arrays.append(pa.array(values, column.type))
        except (pa.ArrowException, OverflowError) as error:
            raise DataError(f"{rows[0].place} and after: column {column.name!r} cannot be kept: {error}") from error
    return pa.table(arrays, schema=schema) if arrays else _rows_without_columns(len(rows))


def parquet_schema(files: Sequence[InputFile], kept: Sequence[str] | None = None) -> pa.Schema:
    """One schema for all Parquet files; every column may be null, since another file may lack it.

    Raises DataError where two files contradict each other in a column that is kept (None: all are).
    """
    merged: dict[str, pa.DataType] = {}
    origins: dict[str, InputFile] = {}  # which file a column's type comes from
    for file in files:
        for field in _schema_of(file):
            first = origins.setdefault(field.name, file)
            before = merged.get(field.name, pa.null())
            found = merge_types(before, nullable(field.type))
            if found is None and (kept is None or field.name in kept):
                raise _contradiction(file, first, f"{field.name!r} is {field.type} here and {before} there")
            if found is not None and found != before:
                merged[field.name], origins[field.name] = found, file
            merged.setdefault(field.name, before)
    schema = pa.schema(list(merged.items()))
    check_values(files, schema, kept)
    return schema


def check_values(files: Sequence[InputFile], schema: pa.Schema, kept: Sequence[str] | None) -> None:
    """Look at all values of columns that get another type. Raises DataError if the type does not hold one exactly."""
    for file in files:
        changed = []
        for field in _schema_of(file):
            kind = nullable(field.type)
            if (kept is None or field.name in kept) and kind != schema.field(field.name).type:
                changed.append(field.name)
        for table in parquet_tables(file, changed) if changed else ():
            for name in changed:
                before, kind = table.column(name).type, schema.field(name).type
                try:
                    table.column(name).cast(kind)
                except pa.ArrowException as error:
                    other = next((other for other in files if _type_in(other, name) not in (None, before)), None)
                    raise _contradiction(file, other, f"{name!r} of type {before} becomes {kind}: {error}") from error


def _schema_of(file: InputFile) -> pa.Schema:
    with open_parquet(file) as parquet:
        # Metadata of the whole schema (pandas' index, datasets' features) would not fit the columns we add.
        schema = parquet.schema_arrow.remove_metadata()
    if len(set(schema.names)) != len(schema.names):
        raise DataError(f"{file.path}: two columns have the same name; rename one")
    return schema


def _type_in(file: InputFile, name: str) -> pa.DataType | None:
    schema = _schema_of(file)
    return schema.field(name).type if name in schema.names else None


def _contradiction(file: InputFile, other: InputFile | None, why: str) -> DataError:
    where = other.path if other is not None else "the JSONL files"
    return DataError(f"{file.path}: its columns do not fit those of {where}: {why}")


def input_tables(files: Sequence[InputFile], schema: pa.Schema, json_names: frozenset[str]) -> Iterator[pa.Table]:
    """All input rows in order, with one schema for all files. A column that a file lacks is null there."""
    for file in files:
        if file.format == "parquet":
            for table in parquet_tables(file, schema.names):
                try:
                    conformed = _conform(table, schema)
                except pa.ArrowException as error:
                    raise DataError(f"{file.path}: the types of its columns have changed: {error}") from error
                yield conformed
        else:
            for rows in read_rows(file):
                yield json_table(rows, schema, json_names)


def _conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    if not schema.names:
        return _rows_without_columns(table.num_rows)
    arrays = []
    for column in schema:
        if column.name not in table.column_names:
            arrays.append(pa.nulls(table.num_rows, column.type))
        else:
            array = table.column(column.name)
            arrays.append(array if array.type == column.type else array.cast(column.type))
    return pa.table(arrays, schema=schema)


def _rows_without_columns(num_rows: int) -> pa.Table:
    return pa.table({"_": pa.nulls(num_rows)}).select([])
