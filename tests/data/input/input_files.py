"""Input files of a test, and the rows that are read from them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from batchrunner.data.input.rows import Row, read_rows
from batchrunner.data.input.sources import InputFile

BIG = 2**53 + 1  # no float holds it


def jsonl(path: Path, content: bytes | Sequence[Any]) -> InputFile:
    """A JSONL file of these bytes, or of one line for each value."""
    if not isinstance(content, bytes):
        content = b"".join(json.dumps(value).encode() + b"\n" for value in content)
    path.write_bytes(content)
    return InputFile(path, "jsonl")


def parquet(path: Path, columns: dict[str, Any] | pa.Table) -> InputFile:
    pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), path)
    return InputFile(path, "parquet")


def all_rows(file: InputFile) -> list[Row]:
    return [row for batch in read_rows(file) for row in batch]


def values_of(file: InputFile) -> list[dict[str, Any]]:
    found = all_rows(file)
    assert all(row.error is None for row in found)
    return [row.values for row in found]
