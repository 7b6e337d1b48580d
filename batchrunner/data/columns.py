"""The types of the input columns, so that every column can be passed through as it came.

Parquet files bring their schema. For JSONL the types are found over all rows before any is written: a column that is
null for the first million rows, or whose objects differ, is no trouble. What no Arrow type holds exactly (text here,
a number there) is kept as JSON text.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from batchrunner.data.rows import Row, open_parquet, parquet_tables, read_rows
from batchrunner.data.sources import InputFile
from batchrunner.errors import DataError

JSON_TEXT = pa.string()
MAX_EXACT_INTEGER = 2**53  # beyond it, a column that also holds floats would change its integers


class JsonColumns:
    """Finds the types of JSONL columns as rows go by."""

    def __init__(self) -> None:
        self._types: dict[str, pa.DataType | None] = {}  # None: JSON text
        self._with_large_integers: set[str] = set()

    def see(self, rows: Sequence[Row]) -> None:
        names: dict[str, None] = {}
        for row in rows:
            names.update(dict.fromkeys(row.values))
        for name in names:
            values = [row.values.get(name) for row in rows]
            if any(type(value) is int and abs(value) > MAX_EXACT_INTEGER for value in values):
                self._with_large_integers.add(name)
            merged = _merge(self._types.get(name, pa.null()), _infer(values))
            self._types[name] = None if merged == pa.float64() and name in self._with_large_integers else merged

    def schema(self) -> pa.Schema:
        return pa.schema([(name, JSON_TEXT if kind is None else kind) for name, kind in self._types.items()])

    @property
    def json_names(self) -> frozenset[str]:
        """Columns kept as JSON text."""
        return frozenset(name for name, kind in self._types.items() if kind is None)


def json_table(rows: Sequence[Row], schema: pa.Schema, json_names: frozenset[str]) -> pa.Table:
    """The rows with the schema found by JsonColumns; an unreadable row is null in every column."""
    arrays = []
    for column in schema:
        values = [row.values.get(column.name) for row in rows]
        if column.name in json_names:
            values = [None if value is None else json.dumps(value, ensure_ascii=False) for value in values]
        try:
            arrays.append(pa.array(values, column.type))
        except pa.ArrowException as error:
            raise DataError(f"{rows[0].place} and after: column {column.name!r} cannot be kept: {error}") from error
    return pa.table(arrays, schema=schema) if arrays else _rows_without_columns(len(rows))


def parquet_schema(files: Sequence[InputFile]) -> pa.Schema:
    """One schema for all Parquet files. Raises DataError where two files contradict each other."""
    schemas = []
    for file in files:
        with open_parquet(file) as parquet:
            # Metadata of the whole schema (pandas' index, datasets' features) would not fit the columns we add.
            schemas.append(parquet.schema_arrow.remove_metadata())
    if not schemas:
        return pa.schema([])
    merged = schemas[0]
    for file, schema in zip(files, schemas, strict=True):
        if len(set(schema.names)) != len(schema.names):
            raise DataError(f"{file.path}: two columns have the same name; rename one")
        try:
            merged = pa.unify_schemas([merged, schema], promote_options="permissive")
        except pa.ArrowException as error:
            raise DataError(f"{file.path}: its columns do not fit those of {files[0].path}: {error}") from error
    return merged


def input_tables(files: Sequence[InputFile], schema: pa.Schema, json_names: frozenset[str]) -> Iterator[pa.Table]:
    """All input rows in order, with one schema for all files. A column that a file lacks is null there."""
    for file in files:
        if file.format == "parquet":
            for table in parquet_tables(file, schema.names):
                yield _conform(table, schema)
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


def _infer(values: list[Any]) -> pa.DataType | None:
    try:
        kind = pa.infer_type(values)
        pa.array(values, kind)
    except (pa.ArrowException, OverflowError, UnicodeError):
        return None
    return kind if _is_writable(kind) else None


def _merge(left: pa.DataType | None, right: pa.DataType | None) -> pa.DataType | None:
    if left is None or right is None:
        return None
    if left.equals(right):
        return left
    try:
        merged = pa.unify_schemas([pa.schema([("x", left)]), pa.schema([("x", right)])], promote_options="permissive")
    except pa.ArrowException:
        return None
    return merged.field("x").type


def _is_writable(kind: pa.DataType) -> bool:
    """Parquet has no struct without fields."""
    if pa.types.is_struct(kind):
        return kind.num_fields > 0 and all(_is_writable(kind.field(i).type) for i in range(kind.num_fields))
    return _is_writable(kind.value_type) if pa.types.is_list(kind) else True
